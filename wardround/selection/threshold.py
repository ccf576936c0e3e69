"""The competence threshold: the other classifier decides where its competence is above the best threshold.

Caldas 2022, 3.2.1: a grid search for the threshold at which the binomial test on changed decisions has the smallest
p-value. Nothing is handed over where no threshold passes.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.selection.flips import Flips, binomial_p, corrected_p, count_flips

Values = np.ndarray[Any, Any]
GRID = 100


class ThresholdChoice(NamedTuple):
    """The best threshold; `corrected` is its p-value after the number of looks and rows of the same patient."""

    value: float
    flips: Flips
    p_value: float
    corrected: float
    looks: int


def choose_competence_threshold(
    competence: Values, signs: Values, patients: Values, rng: np.random.Generator, *, grid: int = GRID
) -> ThresholdChoice:
    """By validation patients: what would change (`signs_of`), and how competent who would decide is.

    The grid is made of equal shares of the patients, the first of which is everybody.
    """
    order = np.argsort(-competence, kind="stable")
    ranked = competence[order]
    wanted = np.unique(np.ceil(np.arange(1, grid + 1) / grid * len(ranked)).astype(int))
    # A look never cuts between equals: it goes on to the last of them.
    looks = np.unique(np.searchsorted(-ranked, -ranked[wanted - 1], side="right"))
    right, wrong = (np.cumsum(one)[looks - 1] for one in (signs[order] > 0, signs[order] < 0))
    p_values = binomial_p(right, wrong)
    best = int(np.argmin(p_values))
    taken = int(looks[best])
    # Halfway to the next patient, so that rounding at a new one changes nothing.
    value = -np.inf if taken == len(ranked) else float((ranked[taken - 1] + ranked[taken]) / 2)
    return ThresholdChoice(
        value,
        count_flips(signs[order][:taken]),
        float(p_values[best]),
        corrected_p(signs[order], looks, patients[order], rng),
        len(looks),
    )
