"""Whether a model treats groups of patients alike: formulas on counts of (group, truth, decision), many at a time.

Foulds et al., "An Intersectional Definition of Fairness", ICDE 2020 (differential fairness); Speicher et al., "A
Unified Approach to Quantifying Algorithmic Unfairness", KDD 2018 (generalized entropy index); Hardt et al., "Equality
of Opportunity in Supervised Learning", NeurIPS 2016 (equal opportunity, equal odds). Counts have shape (..., groups,
classes, classes): what is so, then what was decided; axes before are resamples. Everything is a few sums. What cannot
be computed is not a number; no 0 is put in its place.
"""

from typing import Any

import numpy as np

from wardround.core.bounds import NotNegative
from wardround.core.errors import Refusal

Numbers = np.ndarray[Any, Any]


def count_decisions(group: Numbers, actual: Numbers, decided: Numbers, *, groups: int, classes: int = 2) -> Numbers:
    """How many of each group are so and were decided so, from one number a patient for each of the three.

    >>> counted(np.array([0, 0, 1]), np.array([1, 1, 0]), np.array([1, 0, 0]), groups=2).tolist()
    [[[0, 0], [1, 1]], [[1, 0], [0, 0]]]
    """
    cell = (np.asarray(group) * classes + np.asarray(actual)) * classes + np.asarray(decided)
    return np.bincount(cell, minlength=groups * classes * classes).reshape(groups, classes, classes)


def selection_rates(counts: Numbers, positive: int = 1) -> Numbers:
    """The share of each group for whom the positive class was decided."""
    return _share(counts[..., positive].sum(axis=-1), counts.sum(axis=(-2, -1)))


def true_positive_rates(counts: Numbers, positive: int = 1) -> Numbers:
    """The share found of those in each group who have the positive class."""
    return _share(counts[..., positive, positive], counts[..., positive, :].sum(axis=-1))


def false_positive_rates(counts: Numbers, positive: int = 1) -> Numbers:
    """The share falsely alarmed of those in each group who have it not."""
    others = np.delete(counts, positive, axis=-2)
    return _share(others[..., positive].sum(axis=-1), others.sum(axis=(-2, -1)))


def _share(part: Numbers, whole: Numbers) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(whole > 0, part / whole, np.nan))


def gap(rates: Numbers) -> Numbers:
    """The highest rate less the lowest, among the groups that have one; not a number where fewer than two have."""
    known = ~np.isnan(rates)
    highest = np.where(known, rates, -np.inf).max(axis=-1, initial=-np.inf)
    lowest = np.where(known, rates, np.inf).min(axis=-1, initial=np.inf)
    several = known.sum(axis=-1) > 1
    return np.where(several, np.where(several, highest, 0.0) - np.where(several, lowest, 0.0), np.nan)


def equal_opportunity_gap(counts: Numbers, positive: int = 1) -> Numbers:
    """How far apart the groups' true positive rates are: 0 is fair, 1 as unfair as can be."""
    return gap(true_positive_rates(counts, positive))


def equal_odds_gap(counts: Numbers, positive: int = 1) -> Numbers:
    """The larger of the gaps in true and in false positive rates; not a number where either is none."""
    return np.maximum(
        gap(true_positive_rates(counts, positive)),
        gap(false_positive_rates(counts, positive)),
    )


def differential_fairness(counts: Numbers, *, smoothing: NotNegative = 1.0) -> Numbers:
    """The least epsilon so that every decision is at most e^epsilon times as frequent in one group as in another.

    All decisions count, the negative one too. `smoothing` is what a Dirichlet prior adds to every outcome of every
    group; without it epsilon is infinite where a group never gets a decision that another gets. A decision that
    nobody gets tells nothing. Groups without patients have no frequency and are left out.
    """
    decided, size = counts.sum(axis=-2), counts.sum(axis=(-2, -1))
    there = (size > 0)[..., None]
    classes = counts.shape[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.log((decided + smoothing) / (size[..., None] + classes * smoothing))
    highest = np.where(there, rate, -np.inf).max(axis=-2, initial=-np.inf)
    lowest = np.where(there, rate, np.inf).min(axis=-2, initial=np.inf)
    occurring = np.isfinite(highest)
    apart = np.where(occurring, highest - np.where(occurring, lowest, 0.0), 0.0)
    apart = np.where(occurring, apart, 0.0)
    return np.where((size > 0).sum(axis=-1) > 1, apart.max(axis=-1), np.nan)


def generalized_entropy_index(counts: Numbers, *, alpha: float = 2.0, positive: int = 1) -> Numbers:
    """How unequally patients benefit, whatever their group: benefits are decision - truth + 1, so 0, 1 or 2.

    0 is equality. Not a number where nobody benefits (all are wrongly decided against) or there is nobody.
    """
    if alpha in (0.0, 1.0):
        raise Refusal("the index has no value at alpha 0 and 1", where=f"alpha = {alpha:g}", remedy="take alpha = 2")
    every = counts.sum(axis=-3)
    missed = every[..., positive, :].sum(axis=-1) - every[..., positive, positive]
    alarmed = every[..., positive].sum(axis=-1) - every[..., positive, positive]
    total = every.sum(axis=(-2, -1))
    right = total - missed - alarmed
    mean = _share(right + 2 * alarmed, total)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Nobody with a benefit of 0 means 0, also to a negative power, which would else be infinite times nothing.
        none = np.where(missed > 0, missed * np.power(0.0, alpha), 0.0)
        powers = (none + right + alarmed * np.power(2.0, alpha)) / np.power(mean, alpha)
        return np.where(mean > 0, (powers / total - 1) / (alpha * (alpha - 1)), np.nan)
