"""Measures of predicted survival as the other metrics are: at every site, for the estimate and for every resample.

All judge the time up to the last horizon: whoever is followed up longer counts as free of the event there. Order:
Harrell's C, of the risk summed up over the horizons. Distance: the Brier score with weights for censoring (Graf), over
the horizons; in a resample the censoring is that of the sample. Calibration in the large: how far the mean predicted
risk lies from the Kaplan-Meier curve, averaged over the horizons.
"""

from collections.abc import Iterator

import numpy as np

from wardround.evaluate.rows import Numbers, Rows
from wardround.statistics.survival.concordance import censoring_of, comparable_pairs, pairs_of_each

EXACT = 500
"""Patients of a site up to which every pair is looked at in every resample; beyond, what each patient adds to C."""
AT_ONCE = 1 << 22
"""Pairs that are held at a time."""


def cumulative_risk(predicted: Numbers) -> Numbers:
    """Shape (rows, horizons): the chance of the event by each horizon."""
    return np.asarray(np.cumsum(predicted[:, :-1], axis=1))


def risk_score(predicted: Numbers) -> Numbers:
    """One number a patient, higher where the event is expected sooner: the risks by all horizons, added up."""
    return np.asarray(cumulative_risk(predicted).sum(axis=1))


def c_index(rows: Rows, weights: Numbers | None = None) -> Numbers:
    time, event = rows.follow_up
    score = risk_score(rows.probabilities)
    found = np.zeros((2, 1 if weights is None else len(weights), len(rows.counts)))
    for site, own in pieces(rows):
        if weights is None:
            pairs = comparable_pairs(time[own], event[own], score[own])
            both: tuple[Numbers | float, Numbers | float] = (pairs.right + pairs.tied / 2, pairs.comparable)
        elif len(own) <= EXACT:
            both = weighted_pairs(time[own], event[own], score[own], weights[:, own])
        else:
            key = ("pairs", site, int(own[0]))
            if key not in rows.remembered:
                rows.remembered[key] = added_pairs(time[own], event[own], score[own])
            both = projected_pairs(rows.remembered[key], weights[:, own])
        found[0, :, site] += both[0]
        found[1, :, site] += both[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(found[1] > 0, found[0] / found[1], np.nan))


def pieces(rows: Rows) -> Iterator[tuple[int, Numbers]]:
    """The rows of every site, and within it of every model that predicted there."""
    for site in rows.nonempty_sites:
        own = np.arange(rows.first[site], rows.first[site + 1])
        folds = np.zeros(len(own), np.int64) if rows.fold is None else rows.fold[own]
        for fold in np.unique(folds):
            yield int(site), own[folds == fold]


def pair_matrices(time: Numbers, event: Numbers, score: Numbers, some: slice) -> tuple[Numbers, Numbers]:
    """For the patients `some` and all others: 1 where the pair is in the right order (a tie half), 1 where it counts.

    The first of a pair has the event, and the other was there for longer.
    """
    own = time[some, None]
    pair = (event[some, None] > 0) & ((own < time[None]) | ((own == time[None]) & (event[None] <= 0)))
    credit = pair * ((score[some, None] > score[None]) + 0.5 * (score[some, None] == score[None]))
    return credit, pair.astype(np.float64)


def weighted_pairs(time: Numbers, event: Numbers, score: Numbers, weights: Numbers) -> tuple[Numbers, Numbers]:
    """The weight of the pairs in the right order and of all comparable ones, for every resample.

    A pair weighs the product of its two patients.
    """
    right, comparable = (
        ((weights @ one) * weights).sum(axis=1) for one in pair_matrices(time, event, score, slice(None))
    )
    return right, comparable


def added_pairs(time: Numbers, event: Numbers, score: Numbers) -> Numbers:
    """Shape (2, rows): of the pairs in the right order and of the comparable ones, those that each patient is in."""
    rows = len(time)
    found = np.zeros((2, rows))
    step = max(1, AT_ONCE // rows)
    for begin in range(0, rows, step):
        some = slice(begin, begin + step)
        for place, matrix in enumerate(pair_matrices(time, event, score, some)):
            found[place, some] += matrix.sum(axis=1)
            found[place] += matrix.sum(axis=0)
    return found


def projected_pairs(added: Numbers, weights: Numbers) -> tuple[Numbers, Numbers]:
    """The same as `weighted_pairs` to first order, for many patients: what each adds, less the sums themselves."""
    right, comparable = (weights @ one - one.sum() / 2 for one in added)
    return right, comparable


def brier_parts(rows: Rows) -> Numbers:
    """Shape (rows, horizons): what each patient adds to the Brier score at each horizon, times the site's patients."""
    if "brier" in rows.remembered:
        return np.asarray(rows.remembered["brier"])
    time, event = rows.follow_up
    risk = cumulative_risk(rows.probabilities)
    parts = np.zeros_like(risk)
    for site in rows.nonempty_sites:
        own = slice(int(rows.first[site]), int(rows.first[site + 1]))
        chance = censoring_of(time[own], event[own])
        before = chance.just_before(time[own])
        for place, horizon in enumerate(rows.task.horizons):
            struck = (time[own] <= horizon) & (event[own] > 0)
            # Whoever was seen to be free at the horizon itself counts as beyond it.
            beyond = (time[own] > horizon) | ((time[own] == horizon) & (event[own] <= 0))
            # Just before the horizon: those censored at the horizon itself were seen there.
            there = float(chance.just_before(np.asarray([horizon]))[0])
            left = np.where(struck, before, there)
            weight = np.divide(1.0, left, out=np.zeros(len(left)), where=(left > 0) & (struck | beyond))
            parts[own, place] = weight * np.square(beyond - (1 - risk[own, place]))
    rows.remembered["brier"] = parts
    return parts


def horizon_shares(horizons: tuple[float, ...]) -> Numbers:
    """The weight of each horizon in a mean over time (the trapezoid rule); all of it for one."""
    if len(horizons) == 1:
        return np.ones(1)
    gaps = np.diff(np.asarray(horizons, np.float64))
    return np.asarray((np.append(gaps, 0.0) + np.append(0.0, gaps)) / (2 * gaps.sum()))


def integrated_brier(rows: Rows, weights: Numbers | None = None) -> Numbers:
    column = brier_parts(rows) @ horizon_shares(rows.task.horizons)
    with np.errstate(invalid="ignore"):
        return np.asarray(rows.sums(weights, column[:, None])[:, :, 0] / rows.counts)


def horizon_gap(rows: Rows, weights: Numbers | None = None) -> Numbers:
    """The mean over the horizons of |Kaplan-Meier risk - mean predicted risk|."""
    risk = cumulative_risk(rows.probabilities)
    with np.errstate(invalid="ignore"):
        told = rows.sums(weights, risk) / rows.counts[:, None]
    gaps = np.abs(observed_risks(rows, weights) - told)
    return np.asarray(gaps.mean(axis=2))


def observed_risks(rows: Rows, weights: Numbers | None = None) -> Numbers:
    """Shape (resamples, sites, horizons): the Kaplan-Meier risk by each horizon."""
    time, event = rows.follow_up
    drawn = np.ones((1, len(time))) if weights is None else weights
    found = np.full((len(drawn), len(rows.counts), len(rows.task.horizons)), np.nan)
    for site in rows.nonempty_sites:
        own = np.arange(rows.first[site], rows.first[site + 1])
        order = own[np.argsort(time[own], kind="stable")]
        steps, first = np.unique(time[order], return_index=True)
        events, left = (
            np.add.reduceat(drawn[:, order] * column, first, axis=1) for column in (event[order], np.ones(len(order)))
        )
        at_risk = np.cumsum(left[:, ::-1], axis=1)[:, ::-1]
        share = np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0)
        survival = np.concatenate([np.ones((len(drawn), 1)), np.cumprod(1 - share, axis=1)], axis=1)
        found[:, site] = 1 - survival[:, np.searchsorted(steps, rows.task.horizons, side="right")]
    return found


def patients_seen(rows: Rows) -> float:
    """Of one site: one over the largest share of a mean that a patient has, with weights for censoring.

    That is the number of patients times the chance of not having been censored before the last horizon.
    """
    time, event = rows.follow_up
    chance = censoring_of(time, event).just_before(np.asarray([rows.task.horizons[-1]]))
    return float(len(time) * chance[0])


def patients_compared(rows: Rows) -> float:
    """Of one site: one over the largest share of all comparable pairs that a patient is in; 0 without a pair.

    Where most are lost from sight after the first event and before the others, it is little above 1: that one patient
    is compared with everybody, and C is hers.
    """
    each = pairs_of_each(*rows.follow_up)
    return float(each.sum() / 2 / each.max()) if each.any() else 0.0


def no_pair(rows: Rows, site: int) -> str:
    """Why there is no C."""
    own = slice(int(rows.first[site]), int(rows.first[site + 1]))
    if not rows.follow_up[1][own].any():
        return f"no event by the last horizon among {rows.patients(site)}"
    return f"no two of {rows.patients(site)} can be compared"
