"""Breast cancer: malignant or benign, from thirty measures of cell nuclei.

Wolberg, Street and Mangasarian, Wisconsin diagnostic set, UCI 1995 (CC BY 4.0), as bundled with scikit-learn: 569
tumours, 212 malignant. Needs no file. One pool, to be partitioned.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

from wardround.data.table import Table


def breast_cancer() -> Table:
    """Malignant or benign breast tumours, 569 patients; one pool (bundled with scikit-learn)."""
    bundle = load_breast_cancer(as_frame=True)
    rows = bundle.data.assign(diagnosis=np.where(bundle.target == 0, "malignant", "benign"))
    return Table(
        sites={"all": rows},
        target="diagnosis",
        origin="scikit-learn's bundled breast cancer set",
        task="classification",
        positive="malignant",
    )
