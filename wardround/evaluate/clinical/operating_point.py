"""The operating point: from which risk on a patient is flagged, and what that means in numbers of patients.

Chosen on validation patients, never on those the figures are about: by Youden's index ("Index for rating diagnostic
tests", Cancer 1950; sensitivity and specificity count alike), or as the study says: the highest threshold that still
has a sensitivity, the lowest that has a specificity, the one of the highest net benefit, or a given one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.core.contracts import Task
from wardround.evaluate.clinical.proportions import proportion
from wardround.evaluate.rows import Numbers

DEFAULT = 0.5
"""The threshold where no validation patients can tell a better one."""


class OperatingRule(NamedTuple):
    """How the threshold is chosen: by "youden", or by "sensitivity", "specificity", "net_benefit" or "threshold".

    `target` is the sensitivity, the specificity, the risk at which one would act, or the threshold.
    """

    name: str = "youden"
    target: float = 0.0


class Threshold(NamedTuple):
    """From this risk on a patient is flagged; `fallback` says why it is not the one that the rule asks for."""

    value: float
    fallback: str = ""


def choose_threshold(rule: OperatingRule, risk: Numbers, ill: Numbers) -> Threshold:
    """By the risks and outcomes (0 or 1) of validation patients."""
    if rule.name == "threshold":
        return Threshold(rule.target)
    with_outcome = int(ill.sum())
    if not len(ill) or not 0 < with_outcome < len(ill):
        missing = "no validation patients" if not len(ill) else f"only one outcome among {len(ill)} validation patients"
        return Threshold(DEFAULT, missing)
    # Flagging begins between two neighbouring risks, so that a rounding error at a new patient changes nothing.
    levels = np.unique(np.asarray(risk, np.float64))
    cuts = np.concatenate([[levels[0] / 2], (levels[1:] + levels[:-1]) / 2, [(1 + levels[-1]) / 2]])
    place = np.searchsorted(levels, risk)
    found, alarms = (
        np.append(np.cumsum(np.bincount(place, weights=who, minlength=len(levels))[::-1])[::-1], 0.0)
        for who in (ill, 1 - ill)
    )
    sensitivity, false_alarms = found / with_outcome, alarms / (len(ill) - with_outcome)
    if rule.name == "sensitivity":
        best = int(np.flatnonzero(sensitivity >= rule.target)[-1])
    elif rule.name == "specificity":
        best = int(np.flatnonzero(1 - false_alarms >= rule.target)[0])
    elif rule.name == "net_benefit":
        best = int(np.argmax(found - alarms * rule.target / (1 - rule.target)))
    else:
        best = int(np.argmax(sensitivity - false_alarms))
    return Threshold(float(cuts[best]))


def count_flags(flagged: Numbers, ill: Numbers, level: float = 0.95) -> dict[str, Any]:
    """Patients flagged rightly and wrongly, and the four shares that clinicians know, with Wilson intervals."""
    flagged, ill = np.asarray(flagged, bool), np.asarray(ill, bool)
    right, false = int((flagged & ill).sum()), int((flagged & ~ill).sum())
    missed, left = int((~flagged & ill).sum()), int((~flagged & ~ill).sum())
    return flag_counts(right, false, missed, left, level)


def flag_counts(right: int, false: int, missed: int, left: int, level: float = 0.95) -> dict[str, Any]:
    """The same from the four numbers: flagged rightly and wrongly, not flagged wrongly and rightly."""
    shares = {
        "sensitivity": (right, right + missed, "nobody has the outcome"),
        "specificity": (left, left + false, "everybody has the outcome"),
        "ppv": (right, right + false, "nobody is flagged"),
        "npv": (left, left + missed, "everybody is flagged"),
    }
    return {
        "rows": right + false + missed + left,
        "true_positives": right,
        "false_positives": false,
        "false_negatives": missed,
        "true_negatives": left,
        **{name: proportion(*three, level=level).plain() for name, three in shares.items()},
    }


def flags_by_site(
    risk: Numbers, ill: Numbers, threshold: float, first: Numbers, sites: Sequence[str], level: float = 0.95
) -> dict[str, Any]:
    """The same at every site; `first` holds each site's first row."""
    flagged = risk >= threshold
    parts = {name: slice(int(first[at]), int(first[at + 1])) for at, name in enumerate(sites)}
    return {name: count_flags(flagged[rows], ill[rows], level) for name, rows in parts.items()}


def flags_by_class(probabilities: Numbers, actual: Numbers, task: Task, level: float = 0.95) -> Mapping[str, Any]:
    """For more than two classes: each against the rest, a patient being flagged for the most probable one."""
    predicted = probabilities.argmax(axis=1) if len(actual) else actual
    return {name: count_flags(predicted == index, actual == index, level) for index, name in enumerate(task.classes)}
