"""How far chance moves the difference of two methods that predicted the same patients.

In closed form from what each patient contributes (DeLong's variance for the ROC area), patients drawn independently
within their strata and however often each was predicted; by the bootstrap for metrics without one. For accuracy on one
set of predictions the exact test of McNemar 1947: of the patients whom one method alone classifies rightly, how many
are the first one's?
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import betaincinv
from scipy.stats import binom

from wardround.evaluate.influence import contributions, pairs_counted_twice
from wardround.evaluate.intervals import ENOUGH, chunks, resample_counts
from wardround.evaluate.metrics import Metric, compute_metric
from wardround.evaluate.rows import Numbers, Rows

Place = Literal["weighted", "unweighted"] | int
"""A mean over sites, or the index of one site."""


class Pair(NamedTuple):
    """Both methods on the patients of one pass, and the number of each patient at its site."""

    one: Rows
    other: Rows
    patients: Numbers


class Figures(NamedTuple):
    """At one place of one pass: both methods' figures, and what each site's own counts in them (they add up to 1)."""

    one: float
    other: float
    shares: Numbers

    @property
    def difference(self) -> float:
        return self.one - self.other


class StandardError(NamedTuple):
    """And the degrees of freedom with which it is known; the reason, where it is not."""

    value: float
    freedom: float
    reason: str = ""


class ExactTest(NamedTuple):
    low: float
    high: float
    p_value: float


def figures_at(counts: Numbers, values: tuple[Numbers, Numbers], of: Place) -> Figures | None:
    """`values` of every site for both methods; a mean takes the sites at which BOTH have one. None without any."""
    there = ~(np.isnan(values[0]) | np.isnan(values[1]))
    weight = counts if of == "weighted" else np.ones(len(counts))
    weight = np.where(there & ((np.arange(len(counts)) == of) if isinstance(of, int) else True), weight, 0.0)
    if not weight.sum():
        return None
    shares = weight / weight.sum()
    one, other = (float(shares @ np.where(there, each, 0.0)) for each in values)
    return Figures(one, other, shares)


def closed_error(
    pairs: Sequence[Pair], figures: Sequence[Figures], weights: Numbers, metric: str
) -> StandardError | None:
    """Of the weighted mean over passes; none for a metric without a closed form."""
    keys, moved, strata, twice = [], [], [], 0.0
    for pair, figure, weight in zip(pairs, figures, weights, strict=True):
        one, other = contributions(pair.one, metric), contributions(pair.other, metric)
        if one is None or other is None:
            return None
        share = figure.shares[pair.one.site]
        used = share > 0
        keys.append(np.stack([pair.one.site[used], pair.patients[used]], axis=1))
        moved.append(weight * share[used] * (one.values - other.values)[used])
        strata.append(one.stratum[used])
        if metric == "roc_auc" and pair.one.task.binary:
            twice += float(np.square(weight * figure.shares) @ pairs_counted_twice(pair.one, pair.other))
    _, first, patient = np.unique(np.concatenate(keys), axis=0, return_index=True, return_inverse=True)
    total = np.bincount(patient.ravel(), weights=np.concatenate(moved))
    names, stratum = np.unique(np.concatenate(strata)[first], return_inverse=True)
    sizes = np.bincount(stratum, minlength=len(names)).astype(np.float64)
    several = sizes > 1
    squares = np.bincount(stratum, weights=np.square(total), minlength=len(names))
    variances = np.where(several, squares * sizes / np.maximum(sizes - 1, 1), 0.0)
    if not several.any():
        return StandardError(np.nan, 1.0, "one patient of a kind tells nothing of chance")
    # A single patient shows no spread: its stratum is taken to vary as the others do, by its share of the patients.
    lacking = sizes[~several].sum() / sizes.sum()
    if lacking and len(names) <= 2:
        return StandardError(np.nan, 1.0, "one patient of a kind tells nothing of chance")
    spread = variances.sum()
    if spread <= 0:
        return StandardError(0.0, 1.0)
    freedom = spread**2 / np.sum(np.square(variances[several]) / (sizes[several] - 1))
    spread = max(spread - twice, spread / 2)
    return StandardError(float(np.sqrt(spread / (1 - lacking))), float(freedom))


def bootstrap_error(
    pairs: Sequence[Pair],
    metric: Metric,
    places: Sequence[Place],
    weights: Sequence[Numbers],
    resamples: int,
    seed: int,
) -> list[StandardError]:
    """For every place, the spread of the difference when patients are drawn again, each with all its predictions."""
    sites = len(pairs[0].one.counts)
    keys = np.concatenate([np.stack([pair.one.site, pair.patients], axis=1) for pair in pairs])
    known, index = np.unique(keys, axis=0, return_inverse=True)
    counts = np.bincount(known[:, 0], minlength=sites)
    starts = np.cumsum([0, *(len(pair.patients) for pair in pairs)])
    random = np.random.default_rng([seed % 2**64, 0xBED])
    drawn: list[list[Numbers]] = [[] for _ in places]
    for size in chunks(resamples, len(known)):
        times = resample_counts(random, counts, size)
        gaps = np.zeros((len(places), size))
        for number, pair in enumerate(pairs):
            own = times[:, index.ravel()[starts[number] : starts[number + 1]]]
            both = compute_metric(pair.one, metric, own), compute_metric(pair.other, metric, own)
            for place, of in enumerate(places):
                if weights[place][number]:
                    gaps[place] += weights[place][number] * _gaps(pair.one.counts, both, of)
        for place, gap in enumerate(gaps):
            drawn[place].append(gap)
    errors = []
    for of, parts in zip(places, drawn, strict=True):
        all_draws = np.concatenate(parts)
        draws = all_draws[~np.isnan(all_draws)]
        if len(draws) < ENOUGH * len(all_draws):
            errors.append(StandardError(np.nan, 1.0, f"only {len(draws)} of {len(all_draws)} resamples have a value"))
            continue
        patients = int(counts[of] if isinstance(of, int) else counts.sum())
        strata = 1 if isinstance(of, int) else int((counts > 0).sum())
        errors.append(StandardError(float(draws.std(ddof=1)), float(max(1, patients - strata))))
    return errors


def _gaps(counts: Numbers, both: tuple[Numbers, Numbers], of: Place) -> Numbers:
    """Shape (resamples,): the difference at a place in every resample."""
    one, other = both
    if isinstance(of, int):
        return np.asarray(one[:, of] - other[:, of])
    gap = one - other
    weight = np.where(np.isnan(gap), 0.0, counts if of == "weighted" else 1.0)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(np.isnan(gap), 0.0, gap * weight).sum(axis=1) / weight.sum(axis=1))


def discordant(pair: Pair, of: Place) -> tuple[int, int, int]:
    """(rightly classified by the first method alone, by the second alone, patients) at a place."""
    one, other = ((rows.truth * rows.predicted_classes).sum(axis=1) for rows in (pair.one, pair.other))
    here = pair.one.site == of if isinstance(of, int) else np.ones(len(one), bool)
    return int((one[here] > other[here]).sum()), int((one[here] < other[here]).sum()), int(here.sum())


def mcnemar(only_one: int, only_other: int, patients: int, level: float = 0.95) -> ExactTest:
    """The exact test, and the interval for the difference in accuracy that agrees with it (Clopper & Pearson 1934).

    >>> [round(figure, 4) for figure in mcnemar(9, 1, 27)]
    [0.0407, 0.3694, 0.0215]
    """
    either = only_one + only_other
    p_value = min(1.0, 2 * float(binom.cdf(min(only_one, only_other), either, 0.5)))
    outside = (1 - level) / 2
    low = float(betaincinv(only_one, only_other + 1, outside)) if only_one else 0.0
    high = float(betaincinv(only_one + 1, only_other, 1 - outside)) if only_other else 1.0
    scale = either / patients
    return ExactTest(scale * (2 * low - 1), scale * (2 * high - 1), p_value)
