"""Diabetes: how far the disease has gone on after a year, from age, sex, body mass, pressure and six blood values.

Efron et al., "Least Angle Regression", Annals of Statistics 2004, as bundled with scikit-learn (values as measured, not
scaled): 442 patients. Needs no file. A regression; one pool, to be partitioned.
"""

from sklearn.datasets import load_diabetes

from wardround.data.table import Table


def diabetes() -> Table:
    """Progress of diabetes after one year, 442 patients, a regression; one pool (bundled with scikit-learn)."""
    bundle = load_diabetes(as_frame=True, scaled=False)
    rows = bundle.data.assign(
        sex=bundle.data["sex"].map({1.0: "one", 2.0: "two"}),  # the source does not say which is which
        progression=bundle.target.astype(float),
    )
    return Table(
        sites={"all": rows},
        target="progression",
        origin="scikit-learn's bundled diabetes set",
        task="regression",
    )
