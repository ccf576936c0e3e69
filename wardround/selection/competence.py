"""Competence: how much smaller another classifier's loss is than the site's own, among the nearest known patients.

Caldas, "Collaborative learning by leveraging siloed data", 2022, 3.2: L_c(x, k) is the mean cross-entropy of classifier
c over the k nearest validation patients of x, and rho'(x, k) = log((L_local + e) / (L_other + e)). Above 0 the other
classifier knows more about patients like x.
"""

from typing import Any, Literal

import numpy as np

Values = np.ndarray[Any, Any]
Pick = Literal["competence", "score"]
SURE = 1e-7
"""A score is never nearer to 0 or 1 than this, so that one mistake does not count without end."""
EPSILON = 1e-3
AT_ONCE = 4_000_000
"""Numbers gathered at a time."""


def cross_entropy(score: Values, outcome: Values) -> Values:
    """The loss of each patient; `outcome` is 0 or 1.

    >>> [round(float(loss), 4) for loss in cross_entropy(np.array([0.5, 0.9]), np.array([1, 0]))]
    [0.6931, 2.3026]
    """
    likely = np.clip(np.asarray(score, np.float64), SURE, 1 - SURE)
    return -np.where(np.asarray(outcome) == 1, np.log(likely), np.log1p(-likely))


def loss_nearby(losses: Values, neighbours: Values) -> Values:
    """The mean loss over each row's neighbours: (classifiers, known) and (rows, k) give (classifiers, rows)."""
    classifiers, (rows, k) = len(losses), neighbours.shape
    found = np.empty((classifiers, rows))
    block = max(1, AT_ONCE // max(1, k))
    for first in range(0, rows, block):
        near = neighbours[first : first + block]
        for place in range(classifiers):
            found[place, first : first + block] = losses[place][near].mean(axis=1)
    return found


def competence(nearby: Values, epsilon: float = EPSILON) -> Values:
    """rho' of every other classifier: the first row of `nearby` is the site's own; gives (others, rows)."""
    return np.log((nearby[:1] + epsilon) / (nearby[1:] + epsilon))


def own_difference(losses: Values) -> Values:
    """How much smaller each other classifier's loss is for the very patient, (others, rows)."""
    return losses[:1] - losses[1:]


def pick_other(found: Values, scores: Values, by: Pick = "competence") -> Values:
    """Which other classifier would decide for each patient: (others, rows) of competence and scores.

    "score" is the formula as printed in 3.2.1, the one with the highest score at x; "competence" the one that knows
    most about patients like x, which is what the text around the formula asks for.
    """
    return np.asarray(np.argmax(found if by == "competence" else scores, axis=0))
