"""Is one method better than another? Paired differences on the same patients, with an interval and a plain verdict.

With predictions at hand: a hierarchical bootstrap, repeats drawn again and patients within each. Where all repeats
were tested on the same patients, these are drawn once for all repeats, since their chance does not average out. With
figures only: the corrected resampled t interval of Nadeau & Bengio, "Inference for the Generalization Error", 2003.
Repeats that split the same patients anew are not independent: `test_share` (test rows / all rows) widens the interval
by their correction. Many comparisons are corrected after Holm 1979.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from wardround.core.bounds import Count, Momentum, Share
from wardround.core.contracts import Scores, Task
from wardround.core.errors import Refusal
from wardround.evaluate.intervals import ENOUGH, affordable_resamples, chunks, resample_counts
from wardround.evaluate.metrics import Metric, compute_metric, metrics_for
from wardround.evaluate.rows import Numbers, Rows, rows_of
from wardround.evaluate.summary import weighted_mean

Verdict = Literal["better", "worse", "no difference shown"]
TIE = 1e-12
FEWEST_PATIENTS = 20
"""With fewer, resampling is far too sure of itself: three lucky patients would make a verdict."""


Place = Literal["weighted", "unweighted"] | int
"""A mean over sites, or the index of one site."""


class PairedDifference(NamedTuple):
    """Method a minus method b, averaged over repeats; wins, ties and losses of a count repeats."""

    value: float | None
    low: float | None
    high: float | None
    p_value: float | None
    verdict: Verdict
    wins: int
    ties: int
    losses: int
    repeats: int
    """Repeats in which both methods have a value."""
    reason: str = ""


def tally(a: Sequence[float | None], b: Sequence[float | None], *, higher_is_better: bool) -> tuple[int, int, int]:
    """(wins, ties, losses) of a over b, pair by pair; pairs without a value count for nothing.

    >>> tally([0.8, 0.7, None, 0.5], [0.7, 0.7, 0.6, 0.6], higher_is_better=True)
    (1, 1, 1)
    """
    gaps = [p - q for p, q in zip(a, b, strict=True) if p is not None and q is not None]
    above, below = sum(gap > TIE for gap in gaps), sum(gap < -TIE for gap in gaps)
    ties = len(gaps) - above - below
    return (above, ties, below) if higher_is_better else (below, ties, above)


def _verdict(low: float | None, high: float | None, higher_is_better: bool) -> Verdict:
    if low is None or high is None or low <= 0 <= high:
        return "no difference shown"
    return "better" if (low > 0) == higher_is_better else "worse"


def _inflation(repeats: int, test_share: float) -> float:
    """Variance of a mean over overlapping re-splits, against that over independent repeats."""
    return 1.0 + repeats * test_share / (1.0 - test_share)


def paired_values(
    a: Sequence[float | None],
    b: Sequence[float | None],
    *,
    higher_is_better: bool,
    level: Share = 0.95,
    test_share: Momentum = 0.0,
) -> PairedDifference:
    """Compare two methods by one figure a repeat, where predictions are not at hand."""
    wins, ties, losses = tally(a, b, higher_is_better=higher_is_better)
    gaps = np.array([p - q for p, q in zip(a, b, strict=True) if p is not None and q is not None])
    lost = _lost(len(gaps), len(a))
    if len(gaps) < 2:
        value = float(gaps[0]) if len(gaps) else None
        few = "one repeat alone tells nothing of chance" if len(gaps) else "no repeat in which both have a value"
        return PairedDifference(value, None, None, None, "no difference shown", wins, ties, losses, len(gaps), few)
    value, freedom = float(gaps.mean()), len(gaps) - 1
    error = float(gaps.std(ddof=1)) * np.sqrt(_inflation(len(gaps), test_share) / len(gaps))
    if error <= TIE:
        same = "; ".join(filter(None, [lost, "all repeats differ by the same amount"]))
        return PairedDifference(value, None, None, None, "no difference shown", wins, ties, losses, len(gaps), same)
    reach = float(stdtrit(freedom, 0.5 + level / 2)) * error
    low, high = value - reach, value + reach
    p_value = 2 * float(stdtr(freedom, -abs(value) / error))
    return PairedDifference(
        value, low, high, p_value, _verdict(low, high, higher_is_better), wins, ties, losses, len(gaps), lost
    )


def paired_difference(
    a: Sequence[Scores],
    b: Sequence[Scores],
    task: Task,
    metric: str,
    *,
    of: Place = "weighted",
    positive: int = 1,
    resamples: Count = 2000,
    level: Share = 0.95,
    test_share: Momentum = 0.0,
    seed: int = 0,
) -> PairedDifference:
    """Compare two methods by their predictions, one `Scores` a repeat, for a mean over sites or one site (its index).

    The smallest p-value is 2 / (resamples + 1): take more resamples for a correction over hundreds of comparisons.
    """
    differences = paired_differences(
        a,
        b,
        task,
        metric,
        [of],
        positive=positive,
        resamples=resamples,
        level=level,
        test_share=test_share,
        seed=seed,
    )
    return differences[0]


def paired_differences(
    a: Sequence[Scores],
    b: Sequence[Scores],
    task: Task,
    metric: str,
    places: Sequence[Place],
    *,
    positive: int = 1,
    resamples: Count = 2000,
    level: Share = 0.95,
    test_share: Momentum = 0.0,
    seed: int = 0,
) -> list[PairedDifference]:
    """The same for several means or sites at once, from the same resamples: each is what it would be alone."""
    chosen = metrics_for(task, [metric])[metric]
    pairs = _pairs(a, b, task, positive)
    whole = [_compute(pair, chosen, None) for pair in pairs]
    drawn: dict[tuple[int, ...], list[Numbers]] = {}
    differences = []
    for place, of in enumerate(places):
        estimates = np.array(
            [
                [one[0] for one in _figures(pair[0].counts, figures, of)]
                for pair, figures in zip(pairs, whole, strict=True)
            ]
        ).reshape(-1, 2)
        there = ~np.isnan(estimates).any(axis=1)
        usable = tuple(int(index) for index in np.flatnonzero(there))
        # Which repeats count differs from place to place, and with them the resamples.
        if usable and usable not in drawn:
            drawn[usable] = _draws([pairs[index] for index in usable], chosen, places, resamples, seed)
        kept = [pairs[index] for index in usable]
        draws = drawn[usable][place] if usable else np.empty(0)
        differences.append(_difference(estimates, there, kept, draws, of, chosen, level, test_share))
    return differences


def _difference(
    estimates: Numbers,
    there: Numbers,
    usable: Sequence[tuple[Rows, Rows]],
    drawn: Numbers,
    of: Place,
    chosen: Metric,
    level: float,
    test_share: float,
) -> PairedDifference:
    """What the estimates of the repeats and the resampled differences say together."""
    gaps, kept = estimates[there, 0] - estimates[there, 1], int(there.sum())
    wins, ties, losses = tally(
        estimates[there, 0].tolist(), estimates[there, 1].tolist(), higher_is_better=chosen.higher_is_better
    )
    lost = _lost(kept, len(estimates))

    def nothing(value: float | None, why: str) -> PairedDifference:
        reason = "; ".join(filter(None, [lost, why]))
        return PairedDifference(value, None, None, None, "no difference shown", wins, ties, losses, kept, reason)

    if not kept:
        return nothing(None, "no repeat in which both have a value")
    value = float(gaps.mean())
    patients = min(int(p.counts[of] if isinstance(of, int) else p.counts.sum()) for p, _ in usable)
    if patients < FEWEST_PATIENTS:
        return nothing(value, f"{patients} patients are too few to tell (fewer than {FEWEST_PATIENTS})")
    draws = drawn[~np.isnan(drawn)]
    if len(draws) < ENOUGH * len(drawn):
        return nothing(value, f"only {len(draws)} of {len(drawn)} resamples have a value")
    if np.ptp(draws) <= TIE:
        return nothing(value, "all resamples give the same difference")
    draws = value + np.sqrt(_inflation(kept, test_share)) * (draws - value)
    low, high = (float(end) for end in np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2]))
    one_sided = min((draws <= TIE).sum(), (draws >= -TIE).sum())
    p_value = min(1.0, 2 * float(one_sided + 1) / (len(draws) + 1))
    verdict = _verdict(low, high, chosen.higher_is_better)
    return PairedDifference(value, low, high, p_value, verdict, wins, ties, losses, kept, lost)


def _lost(kept: int, repeats: int) -> str:
    return "" if kept == repeats else f"undefined in {repeats - kept} of {repeats} repeats"


def _pairs(a: Sequence[Scores], b: Sequence[Scores], task: Task, positive: int) -> list[tuple[Rows, Rows]]:
    if len(a) != len(b):
        raise Refusal(
            f"one method has {len(a)} repeats and the other {len(b)}",
            remedy="compare repeats that both methods have finished",
        )
    pairs = [
        (rows_of(p, task, positive=positive), rows_of(q, task, positive=positive)) for p, q in zip(a, b, strict=True)
    ]
    for repeat, (p, q) in enumerate(pairs):
        if not _same_patients(p, q):
            raise Refusal(
                "the two methods were tested on different patients",
                where=f"repeat {repeat + 1}",
                remedy="run both methods with the same seed and the same splits",
            )
    return pairs


def _same_patients(p: Rows, q: Rows) -> bool:
    return np.array_equal(p.first, q.first) and np.array_equal(p.actual, q.actual)


def _compute(pair: tuple[Rows, Rows], metric: Metric, weights: Numbers | None) -> tuple[Numbers, Numbers]:
    """Shape (resamples, sites) for each method."""
    return compute_metric(pair[0], metric, weights), compute_metric(pair[1], metric, weights)


def _figures(counts: Numbers, figures: tuple[Numbers, Numbers], of: Place) -> tuple[Numbers, Numbers]:
    """Shape (resamples,) for each method; a mean over sites takes only those at which BOTH have a value."""
    one, other = figures
    if isinstance(of, int):
        return one[:, of], other[:, of]
    missing = np.isnan(one) | np.isnan(other)
    counts = counts if of == "weighted" else np.ones(len(counts))
    return (
        weighted_mean(np.where(missing, np.nan, one), counts),
        weighted_mean(np.where(missing, np.nan, other), counts),
    )


def _draws(
    pairs: Sequence[tuple[Rows, Rows]], metric: Metric, places: Sequence[Place], resamples: int, seed: int
) -> list[Numbers]:
    """For every place, the mean difference in each resample of repeats and patients."""
    resamples = affordable_resamples(resamples, len(pairs) * len(pairs[0][0].actual))
    together = all(_same_patients(pairs[0][0], p) for p, _ in pairs)
    rng = np.random.default_rng([seed % 2**64, 0xD1FF])
    gaps = np.empty((len(places), len(pairs), resamples))
    for repeat, (p, q) in enumerate(pairs):
        patients = np.random.default_rng([seed % 2**64, 0xBED, 0 if together else repeat])
        start = 0
        for size in chunks(resamples, len(p.actual)):
            figures = _compute((p, q), metric, resample_counts(patients, p.counts, size))
            for place, of in enumerate(places):
                one, other = _figures(p.counts, figures, of)
                gaps[place, repeat, start : start + size] = one - other
            start += size
    shape = (resamples, len(pairs))
    picked = rng.integers(0, len(pairs), shape)
    # The same patients in all repeats: one draw of them serves the whole resample. Otherwise each has its own.
    draw = np.broadcast_to(np.arange(resamples)[:, None], shape) if together else rng.integers(0, resamples, shape)
    return [np.asarray(own[picked, draw].mean(axis=1)) for own in gaps]


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for being looked at together.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    factors = len(order) - np.arange(len(order))
    stepped = np.maximum.accumulate(np.asarray(p_values, np.float64)[order] * factors)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


def apply_holm(differences: Mapping[Any, PairedDifference], *, level: Share = 0.95) -> dict[Any, PairedDifference]:
    """The same differences with Holm's p-values, and "no difference shown" where they no longer suffice."""
    tested = [name for name, one in differences.items() if one.p_value is not None]
    adjusted = dict(zip(tested, holm([differences[name].p_value or 0.0 for name in tested]), strict=True))
    result = dict(differences)
    for name, p_value in adjusted.items():
        result[name] = result[name]._replace(p_value=p_value)
        if p_value > 1 - level:
            result[name] = result[name]._replace(verdict="no difference shown")
    return result
