"""What the ways to train are, in a few words for someone who reads one report."""

MEANINGS = {
    "local": "each hospital trains alone",
    "centralized": "all patients' records in one place, for comparison only",
    "fed_avg": "one model that all hospitals train together",
    "fine_tune": "the common model, then adapted to each hospital's own patients",
    "ditto": "a model of each hospital's own, kept close to the common one",
    "weight_erosion": "trained for one hospital; others count less the more their patients differ",
}
"""By algorithm; one that is not here goes by its label alone."""


ADAPTED = frozenset({"fine_tune", "ditto", "layer_split", "meta", "model_interpolation"})
"""Algorithms in which a common model becomes one of each hospital's own."""


def is_adapted(algorithm: str) -> bool:
    return algorithm in ADAPTED


def meaning_of(algorithm: str) -> str:
    return MEANINGS.get(algorithm, "")
