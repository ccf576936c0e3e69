"""Which way to train is recommended to a hospital that does not want to choose, and why, in a sentence or two."""

from collections.abc import Sequence

from wardround.report.partners.recommendation import RECOMMENDED
from wardround.runs.fields import mapping
from wardround.runs.run import Run

FOR_OTHERS = "model_interpolation"
"""Where the recommended method cannot be: for networks and in private studies."""
LINEAR = ("logistic", "linear")


def advised_method(model: str, trained: Sequence[str], *, hospitals: int, private: bool) -> str:
    """Nothing where it was trained, or where there is nobody to train with; `trained` are algorithms."""
    best = RECOMMENDED if model in LINEAR and not private else FOR_OTHERS
    if not model or hospitals < 2 or best in trained:
        return ""
    reason = {
        RECOMMENDED: "all hospitals learn together how much they differ in each coefficient, and each keeps its own as "
        "far as its patients show it: nearly the common model where hospitals are alike, nearly its own where one "
        "stands alone",
        FOR_OTHERS: "each hospital mixes the common model with its own, as cross-validation on its patients says",
    }[best]
    words = f'For a hospital that does not want to choose, we recommend [algorithm] name = "{best}": {reason}.'
    return f"{words} It was not among the ways compared here." if len(trained) > 1 else words


def advice_of(run: Run) -> str:
    """The same of a run, from its files."""
    study = mapping(run.manifest.get("study"))
    if run.kind == "site" or not study:
        return ""
    return advised_method(
        str(mapping(study.get("model")).get("name") or ""),
        [method.algorithm for method in run.methods],
        hospitals=len(run.hospitals),
        private=study.get("privacy") is not None,
    )
