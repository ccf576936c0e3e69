"""What a site adds up for a Cox regression: at every step of the fit, and once the coefficients are found."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from wardround.analyses.survival.rows import FollowUp
from wardround.core.errors import Refusal
from wardround.statistics.regression.site_sums import SHARE_OF_PARAMETERS, SPREAD, is_small_group
from wardround.statistics.survival.binned_likelihood import IntervalSums, interval_sums, width_of
from wardround.statistics.survival.concordance import Pairs, comparable_pairs
from wardround.statistics.survival.heterogeneity import SUMS, site_terms
from wardround.statistics.survival.partial_likelihood import (
    Likelihood,
    Risk,
    Ties,
    likelihood_of,
    risk_of,
    score_residuals,
    trend_sums,
)
from wardround.statistics.survival.time_axis import blocks_of, intervals_of, struck_within

Values = np.ndarray[Any, Any]


def tells_of_few(rows: FollowUp, cell: int) -> bool:
    """Whether sums over the site's patients would tell of fewer than a cell: the rules of regressions, with events."""
    if cell <= 1:
        return False
    if min(len(rows.time), rows.event.sum()) < cell or rows.x.shape[1] > SHARE_OF_PARAMETERS * len(rows.time):
        return True
    return any(is_small_group(column, cell) for column in rows.x.T)


def refuse_isolated(rows: FollowUp, beta: Values, cell: int) -> None:
    """Refuse coefficients under which a few patients alone make up the risk sets (Kish's effective number)."""
    if cell <= 1 or not len(rows.time):
        return
    log_weight = rows.x @ beta
    weight = np.exp(log_weight - log_weight.max())
    least = max(cell, SPREAD * len(weight))
    if weight.sum() ** 2 < least * (weight**2).sum():
        raise Refusal(
            f"with these coefficients fewer than {least:.0f} patients would make up the sums",
            remedy="fit fewer columns, or with a penalty; whoever asks for single patients gets nothing",
        )


def column_moments(x: Values, cell: int) -> dict[str, Values]:
    """For a common centre and scale: a coarse number of patients, times mean and square; and what is not 0 or 1."""
    count = len(x) - len(x) % cell if len(x) >= cell else 0
    columns = x.shape[1]
    if not count:
        return {"rows": np.zeros(()), **{name: np.zeros(columns) for name in ("x_sum", "x_square", "x_odd")}}
    return {
        "rows": np.asarray(float(count)),
        "x_sum": count * x.mean(axis=0),
        "x_square": count * (x**2).mean(axis=0),
        "x_odd": (~np.isin(x, (0.0, 1.0))).any(axis=0).astype(np.float64),
    }


def risks(rows: FollowUp, beta: Values, ties: Ties) -> Iterator[Risk]:
    """The strata of the site in which somebody has an event."""
    for stratum in np.unique(rows.stratum):
        own = rows.stratum == stratum
        if rows.event[own].any():
            yield risk_of(rows.x[own], rows.time[own], rows.event[own], beta, ties, rows.entry[own])


def site_likelihood(rows: FollowUp, beta: Values, ties: Ties) -> Likelihood:
    """Added up over the site's strata, each with its own risk sets; nothing without an event."""
    value, score, information = 0.0, np.zeros(len(beta)), np.zeros((len(beta), len(beta)))
    for risk in risks(rows, beta, ties):
        found = likelihood_of(risk)
        value, score, information = value + found.value, score + found.score, information + found.information
    return Likelihood(value, score, information)


def site_intervals(rows: FollowUp, beta: Values, edges: Values, strata: int, cell: int) -> dict[str, Values]:
    """Sums over the intervals of a common axis, with a first axis of strata."""
    size, width, columns = len(edges), width_of(len(beta)), len(beta)
    shapes = ((size + 1, width), (size, width), (size,), (size, columns))
    told = [np.zeros((strata, *shape)) for shape in shapes]
    for stratum in np.unique(rows.stratum):
        own = rows.where(rows.stratum == stratum)
        place = intervals_of(own.time, edges)
        event = struck_within(own.event, place, size)
        blocks = blocks_of(place, event, cell, size)
        if blocks is not None:
            for into, part in zip(told, interval_sums(own.x, blocks, event, beta), strict=True):
                into[stratum] = part
    return dict(zip(IntervalSums._fields, told, strict=True))


def site_blur(rows: FollowUp, edges: Values, cell: int) -> Values:
    """Over how long a time the patients of blocks are spread, all together."""
    total = 0.0
    for stratum in np.unique(rows.stratum):
        own = rows.where(rows.stratum == stratum)
        place = intervals_of(own.time, edges)
        blocks = blocks_of(place, struck_within(own.event, place, len(edges)), cell, len(edges))
        total += 0.0 if blocks is None else float(blocks.widths(edges).sum())
    return np.asarray(total)


def site_trend(rows: FollowUp, beta: Values, ties: Ties, middle: float, width: float) -> dict[str, Values]:
    """For the check of proportional hazards, added up over the strata."""
    p = len(beta)
    told = [np.zeros(p), np.zeros((p, p)), np.zeros((p, p))]
    for risk in risks(rows, beta, ties):
        told = [a + b for a, b in zip(told, trend_sums(risk, middle, width), strict=True)]
    return dict(zip(("trend_score", "trend_crossed", "trend_information"), told, strict=True))


def site_meat(rows: FollowUp, beta: Values, ties: Ties) -> Values:
    """The sum of squares of the patients' own scores, for robust errors."""
    meat = np.zeros((len(beta), len(beta)))
    for risk in risks(rows, beta, ties):
        residuals = score_residuals(risk)
        meat = meat + residuals.T @ residuals
    return meat


def site_baseline(rows: FollowUp, beta: Values, edges: Values, cell: int) -> dict[str, Values]:
    """Events and sums of exp(x beta) by interval, for one baseline hazard of all sites."""
    place = intervals_of(rows.time, edges)
    event = struck_within(rows.event, place, len(edges))
    blocks = blocks_of(place, event, cell, len(edges))
    told = np.zeros((len(edges) + 1, 2))
    if blocks is not None:
        told = blocks.told(np.column_stack([np.exp(rows.x @ beta), event]))
    return {"base_left": told[:, 0], "base_events": told[:-1, 1]}


def site_pairs(rows: FollowUp, beta: Values, cell: int) -> Values:
    """Comparable pairs of the site's own patients: how many, ordered right, tied; none where patients enter late."""
    if len(rows.time) < cell or np.isfinite(rows.entry).any():
        return np.zeros(3)
    return np.asarray(comparable_pairs(rows.time, rows.event, rows.x @ beta), np.float64)


def pairs_from(told: Values) -> Pairs:
    return Pairs(*(float(one) for one in told))


def own_estimate(rows: FollowUp, ties: Ties) -> Values:
    """The site's own fit as terms of a sum over sites (see `heterogeneity`); zeros where it has none."""
    p = rows.x.shape[1]
    estimate, error = np.full(p, np.nan), np.full(p, np.nan)
    used = np.flatnonzero(rows.x.std(axis=0) > 1e-9) if len(rows.x) else np.zeros(0, np.int64)
    if len(used) and rows.event.sum() > len(used):
        found = climb_alone(rows._replace(x=rows.x[:, used]), ties)
        if found is not None:
            estimate[used], error[used] = found
    terms = site_terms(estimate, error)
    assert len(terms) == SUMS
    return terms


def climb_alone(rows: FollowUp, ties: Ties) -> tuple[Values, Values] | None:
    """Newton's method on one site's rows; none where it does not end, or some effect has no end."""
    beta, last = np.zeros(rows.x.shape[1]), -np.inf
    step = np.zeros_like(beta)
    for _ in range(40):
        found = site_likelihood(rows, beta, ties)
        if found.value < last - 1e-9 * abs(last):
            step = step / 2
            beta = beta - step
            continue
        last = found.value
        spread = np.sqrt(np.maximum(np.diag(found.information), 1e-300))
        if np.linalg.eigvalsh(found.information / np.outer(spread, spread))[0] < 1e-6:
            return None
        inverse = np.linalg.inv(found.information)
        step = inverse @ found.score
        if np.abs(step).max() < 1e-8:
            return beta + step, np.sqrt(np.diag(inverse))
        beta = beta + step
        if np.abs(beta).max() > 10:
            return None
    return None
