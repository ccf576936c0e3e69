"""Hazards as what trees are fitted to: Cox's partial likelihood over intervals of time that all sites share.

The slopes are those of XGBoost's survival:cox, with Breslow's ties whole: a patient with score s who leaves in interval
k has e^s H - event and e^s H - e^2s Q, where H and Q add up events / risk and events / risk^2 of the intervals up to k,
and risk is the sum of e^s over all patients who are still there. Each interval's risk and events are sums over sites.
Trees are watched and judged by the likelihood of a patient under that hazard, which needs no other patient.
"""

from typing import Any

import numpy as np

from wardround.statistics.survival.concordance import comparable_pairs
from wardround.statistics.trees.objectives import Objective, Slopes

Numbers = np.ndarray[Any, Any]
COX = "cox"
STEEP = 30.0
"""Scores are cut off here, where single precision knows no larger hazard."""


def signed_times(time: Numbers, event: Numbers) -> Numbers:
    """One number a patient, as XGBoost has it: the time, below 0 where it is censored; NaN where either is unknown."""
    return np.asarray(np.where(np.isnan(event), np.nan, np.where(event > 0, time, -time)))


def interval_labels(signed: Numbers, intervals: Numbers) -> Numbers:
    """The same of intervals, counted from 1."""
    return np.where(np.signbit(signed), -1.0, 1.0) * (intervals.astype(np.float64) + 1)


def risk_sums(score: Numbers, y: Numbers, intervals: int) -> Numbers:
    """(2, intervals): the sum of e^score over those who have not left before, and the events."""
    place = np.abs(y).astype(int) - 1
    leaving = np.bincount(place, relative_hazards(score), intervals)
    return np.stack([np.cumsum(leaving[::-1])[::-1], np.bincount(place, y > 0, intervals)])


def hazard_of(sums: Numbers) -> Numbers:
    """(3, intervals): H, Q, and the log of the interval's own hazard, where half an event stands for none."""
    risk, events = np.maximum(sums, 0.0)
    risk = np.where(risk > 0, risk, np.inf)
    own = np.log(np.maximum(events, 0.5) / np.where(np.isfinite(risk), risk, 1.0))
    return np.stack([np.cumsum(events / risk), np.cumsum(events / risk**2), own])


def is_hazard(told: Numbers, intervals: int) -> bool:
    """Whether it could be one: of so many intervals, finite, and never falling."""
    sound = told.shape == (3, intervals) and bool(np.isfinite(told).all())
    return sound and bool((np.diff(told[:2], axis=1) >= 0).all() and (told[:2] >= 0).all())


def relative_hazards(score: Numbers) -> Numbers:
    return np.asarray(np.exp(np.clip(score, -STEEP, STEEP).astype(np.float64)))


def cox(hazard: Numbers | None = None) -> Objective:
    """The hazard of an event; labels are intervals from 1, below 0 where censored. Slopes and losses need a hazard."""

    def parts(score: Numbers, y: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        assert hazard is not None
        place = np.abs(y).astype(int) - 1
        return relative_hazards(score[0]), hazard[:, place], y > 0

    def slopes(score: Numbers, y: Numbers) -> Slopes:
        relative, at, event = parts(score, y)
        expected = relative * at[0]
        curved = np.maximum(expected - relative**2 * at[1], 0.0)
        return Slopes((expected - event)[None].astype(np.float32), curved[None].astype(np.float32))

    def loss(score: Numbers, y: Numbers) -> Numbers:
        relative, at, event = parts(score, y)
        return np.asarray(relative * at[0] - event * (np.log(relative) + at[2]))

    return Objective(
        COX, 1, lambda y: np.array([len(y), np.count_nonzero(~np.signbit(y))], np.float64), lambda told: np.zeros(1),
        slopes, loss, lambda score: relative_hazards(score[0]), None,
    )  # fmt: skip


def order_sums(signed: Numbers, intervals: Numbers, score: Numbers) -> Numbers:
    """(6,): patients, events, pairs that can be compared, ordered right, tied, and in one interval."""
    time, event = np.abs(signed), ~np.signbit(signed)
    pairs = comparable_pairs(time, event, score)
    apart = comparable_pairs(intervals, event, score).comparable
    return np.array([len(signed), event.sum(), *pairs, max(pairs.comparable - apart, 0.0)])
