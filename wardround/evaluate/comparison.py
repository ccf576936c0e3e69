"""Is one method better than another? Paired differences on the same patients, with an interval and a plain verdict.

With predictions at hand a test on the level of patients: every patient counts once, however often it was predicted.
Repeats are folds of a cross-validation (see `out_of_fold`), so that all patients are tested by models that had not seen
them; the difference of a metric over these predictions is judged by its standard error (see `paired_error`), in closed
form for most metrics, so that a p-value can be small. Where the repeats are re-splits of the same patients and nobody
says which is which, `test_share` (test rows / all rows) takes account of patients that are tested more than once. With
figures only: the corrected resampled t interval of Nadeau & Bengio, "Inference for the Generalization Error", 2003.
Many comparisons are corrected after Holm 1979.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from wardround.core.bounds import Count, Momentum, Share
from wardround.core.contracts import Scores, Task
from wardround.core.errors import Refusal
from wardround.evaluate.metrics import Metric, compute_metric, metrics_for
from wardround.evaluate.out_of_fold import Predicted, join_folds, passes_of
from wardround.evaluate.paired_error import (
    Figures,
    Pair,
    Place,
    StandardError,
    bootstrap_error,
    closed_error,
    discordant,
    figures_at,
    mcnemar,
)
from wardround.evaluate.rows import Numbers, rows_of

Verdict = Literal["better", "worse", "no difference shown"]
TIE = 1e-12
FEWEST_PATIENTS = 20
"""With fewer, a standard error is far too sure of itself: three lucky patients would make a verdict."""
FEWEST_DISCORDANT = 25
"""With fewer patients on whom two methods disagree, the test of McNemar is the exact one."""


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
    patients: Sequence[Numbers] | None = None,
    positive: int = 1,
    resamples: Count = 2000,
    level: Share = 0.95,
    test_share: Momentum = 0.0,
    seed: int = 0,
) -> PairedDifference:
    """Compare two methods by their predictions, one `Scores` a repeat, for a mean over sites or one site (its index).

    `patients` tells for every repeat the number of each tested patient at its site; without it, repeats test other
    patients each time, unless they are all alike.
    """
    differences = paired_differences(
        a,
        b,
        task,
        metric,
        [of],
        patients=patients,
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
    patients: Sequence[Numbers] | None = None,
    positive: int = 1,
    resamples: Count = 2000,
    level: Share = 0.95,
    test_share: Momentum = 0.0,
    seed: int = 0,
) -> list[PairedDifference]:
    """The same for several means or sites at once: each is what it would be alone.

    `resamples` are drawn only for a metric whose standard error has no closed form.
    """
    chosen = metrics_for(task, [metric])[metric]
    refuse_unpaired(a, b)
    known = numbers_of(a) if patients is None else patients
    ours, theirs = ([Predicted(*one) for one in zip(scores, known, strict=True)] for scores in (a, b))
    folds = [_pair([p], [q], task, positive) for p, q in zip(ours, theirs, strict=True)]
    pairs = [
        _pair([ours[number] for number in one], [theirs[number] for number in one], task, positive)
        for one in passes_of(ours)
    ]
    values, by_fold = ([_values(pair, chosen) for pair in each] for each in (pairs, folds))
    settled = []
    for of in places:
        found = [figures_at(pair.one.counts, value, of) for pair, value in zip(pairs, values, strict=True)]
        each = [figures_at(pair.one.counts, value, of) for pair, value in zip(folds, by_fold, strict=True)]
        settled.append(_Place(of, found, _weights(pairs, found, of), each))
    inflation = 1 + test_share * (len(a) - 1) if patients is None else 1.0
    errors = _errors(pairs, settled, metric, chosen, resamples, seed)
    return [
        _difference(one, pairs, error, chosen, metric, level, inflation)
        for one, error in zip(settled, errors, strict=True)
    ]


class _Place(NamedTuple):
    """A mean or a site: its figures in every pass and in every repeat, and what each pass counts."""

    of: Place
    passes: Sequence[Figures | None]
    weights: Numbers
    repeats: Sequence[Figures | None]


def numbers_of(scores: Sequence[Scores]) -> list[Numbers]:
    """Numbers for patients of whom nothing is known: the same in every repeat where these look alike, else others."""
    alike = all(
        np.array_equal(one.first, scores[0].first) and np.array_equal(one.actual, scores[0].actual) for one in scores
    )
    rows = [len(one.actual) for one in scores]
    starts = np.zeros(len(rows), np.int64) if alike else np.cumsum(rows) - rows
    return [start + np.arange(count) for start, count in zip(starts, rows, strict=True)]


def _pair(ours: Sequence[Predicted], theirs: Sequence[Predicted], task: Task, positive: int) -> Pair:
    p, q = join_folds(ours), join_folds(theirs)
    one, other = (rows_of(each.scores, task, positive=positive, fold=each.fold) for each in (p, q))
    return Pair(one, other, p.patients)


def _values(pair: Pair, metric: Metric) -> tuple[Numbers, Numbers]:
    """Of every site, for each method."""
    return compute_metric(pair.one, metric)[0], compute_metric(pair.other, metric)[0]


def _weights(pairs: Sequence[Pair], found: Sequence[Figures | None], of: Place) -> Numbers:
    """What each pass counts: by its patients, where it has a value."""
    rows = np.array([float(_patients_at(pair, of)) for pair in pairs])
    there = np.array([one is not None for one in found])
    return np.asarray(np.where(there, rows, 0.0) / max(1.0, rows[there].sum()))


def _patients_at(pair: Pair, of: Place) -> int:
    return int(pair.one.counts[of] if isinstance(of, int) else pair.one.counts.sum())


def _errors(
    pairs: Sequence[Pair], places: Sequence[_Place], metric: str, chosen: Metric, resamples: int, seed: int
) -> list[StandardError | None]:
    """For every place with a value its standard error."""
    errors: list[StandardError | None] = []
    for place in places:
        there = [number for number, one in enumerate(place.passes) if one is not None]
        error = None
        if there:
            figures = [one for one in place.passes if one is not None]
            error = closed_error([pairs[number] for number in there], figures, place.weights[there], metric)
            if error is None:
                break
        errors.append(error)
    else:
        return errors
    weights = [place.weights for place in places]
    drawn = bootstrap_error(pairs, chosen, [place.of for place in places], weights, resamples, seed)
    return [error if place.weights.any() else None for place, error in zip(places, drawn, strict=True)]


def _difference(
    place: _Place,
    pairs: Sequence[Pair],
    error: StandardError | None,
    chosen: Metric,
    metric: str,
    level: float,
    inflation: float,
) -> PairedDifference:
    """What the figures of the repeats, the difference over all patients and its standard error say together."""
    known = [one for one in place.repeats if one is not None]
    wins, ties, losses = tally(
        [one.one for one in known], [one.other for one in known], higher_is_better=chosen.higher_is_better
    )
    lost = _lost(len(known), len(place.repeats))

    def settle(
        value: float | None, why: str = "", low: float | None = None, high: float | None = None, p: float | None = None
    ) -> PairedDifference:
        reason = "; ".join(filter(None, [lost, why]))
        verdict = _verdict(low, high, chosen.higher_is_better)
        return PairedDifference(value, low, high, p, verdict, wins, ties, losses, len(known), reason)

    if error is None:
        return settle(None, "no repeat in which both have a value")
    value = float(
        sum(w * one.difference for w, one in zip(place.weights, place.passes, strict=True) if one is not None)
    )
    if metric == "accuracy" and len(pairs) == 1 and inflation == 1 and place.of != "unweighted":
        only_one, only_other, patients = discordant(pairs[0], place.of)
        if len(place.repeats) == 1 or only_one + only_other < FEWEST_DISCORDANT:
            exact = mcnemar(only_one, only_other, patients, level) if only_one + only_other else None
            return settle(value, "", *exact) if exact else settle(value, "both classify every patient alike")
    if why := _no_test(value, int(max(_patients_at(pair, place.of) for pair in pairs) / inflation), error):
        return settle(value, why)
    wide = error.value * np.sqrt(inflation)
    reach = float(stdtrit(error.freedom, 0.5 + level / 2)) * wide
    p_value = 2 * float(stdtr(error.freedom, -abs(value) / wide))
    return settle(value, "", value - reach, value + reach, p_value)


def _no_test(value: float, patients: int, error: StandardError) -> str:
    """Why chance cannot be told from this, if so."""
    if patients < FEWEST_PATIENTS:
        return f"{patients} patients are too few to tell (fewer than {FEWEST_PATIENTS})"
    if error.reason or error.value > TIE:
        return error.reason
    return "no patient makes a difference" if abs(value) <= TIE else "all patients differ alike"


def _lost(kept: int, repeats: int) -> str:
    return "" if kept == repeats else f"undefined in {repeats - kept} of {repeats} repeats"


def refuse_unpaired(a: Sequence[Scores], b: Sequence[Scores]) -> None:
    if len(a) != len(b):
        raise Refusal(
            f"one method has {len(a)} repeats and the other {len(b)}",
            remedy="compare repeats that both methods have finished",
        )
    for repeat, (p, q) in enumerate(zip(a, b, strict=True)):
        if not (np.array_equal(p.first, q.first) and np.array_equal(p.actual, q.actual)):
            raise Refusal(
                "the two methods were tested on different patients",
                where=f"repeat {repeat + 1}",
                remedy="run both methods with the same seed and the same splits",
            )


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
