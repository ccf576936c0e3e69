"""Performance and entropy of a model's scores, for many resamples of the patients at once.

A resample is a count for each patient, so every measure takes counts of shape (resamples, patients). The entropy is
that of the distribution of scores (Caldas 2022, 4.2): in bits, over twenty equal parts of 0 to 1. A model whose scores
crowd at few values is more consistent.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
PARTS = 20


def tnr_at_90_tpr(scores: Values, outcome: Values, counts: Values) -> Values:
    """The true negative rate at the highest threshold that finds 90 % of the positives; NaN without both outcomes."""
    order = np.argsort(-scores, kind="stable")
    ranked, positive = scores[order], outcome[order] == 1
    weights = counts[:, order]
    found = np.cumsum(weights * positive, axis=1)
    alarms = np.cumsum(weights * ~positive, axis=1)
    # Patients with the same score are flagged together: each place stands for the last of its equals.
    last = np.searchsorted(-ranked, -ranked, side="right") - 1
    found, alarms = found[:, last], alarms[:, last]
    positives, negatives = found[:, -1], alarms[:, -1]
    first = np.argmax(found >= 0.9 * positives[:, None] - 1e-9, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = 1 - alarms[np.arange(len(counts)), first] / negatives
    return np.where((positives > 0) & (negatives > 0), rate, np.nan)


def roc_auc(scores: Values, outcome: Values, counts: Values) -> Values:
    """The chance that a positive patient has the higher score, ties counting half."""
    levels, place = np.unique(scores, return_inverse=True)
    positive = np.zeros((len(counts), len(levels)))
    negative = np.zeros_like(positive)
    for into, of in ((positive, outcome == 1), (negative, outcome != 1)):
        np.add.at(into.T, place[of], counts.T[of])
    below = np.cumsum(negative, axis=1) - negative
    with np.errstate(invalid="ignore", divide="ignore"):
        return (positive * (below + negative / 2)).sum(axis=1) / (positive.sum(axis=1) * negative.sum(axis=1))


def accuracy(scores: Values, outcome: Values, counts: Values) -> Values:
    """The share of patients on the right side of one half."""
    right = (scores >= 0.5) == (outcome == 1)
    return (counts * right).sum(axis=1) / counts.sum(axis=1)


def score_entropy(scores: Values, counts: Values) -> Values:
    """Of the distribution of the scores, in bits.

    >>> score_entropy(np.array([0.1, 0.1, 0.9, 0.9]), np.ones((1, 4))).tolist()
    [1.0]
    """
    part = np.minimum((np.asarray(scores) * PARTS).astype(int), PARTS - 1)
    held = counts @ np.eye(PARTS)[part]
    share = held / held.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = np.where(share > 0, -share * np.log2(share), 0.0)
    return bits.sum(axis=1)


METRICS: Mapping[str, Callable[[Values, Values, Values], Values]] = {
    "tnr_at_90_tpr": tnr_at_90_tpr,
    "roc_auc": roc_auc,
    "accuracy": accuracy,
}
NAMES = {
    "tnr_at_90_tpr": "true negative rate at 90 % sensitivity",
    "roc_auc": "ROC-AUC",
    "accuracy": "accuracy",
}
