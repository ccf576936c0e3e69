"""Membership inference: whether a patient's record was among those that a model learned from.

- The threshold of Yeom et al., "Privacy Risk in Machine Learning: Analyzing the Connection to Overfitting", CSF 2018:
  whose loss is below the mean loss of the training rows is taken for a member.
- LiRA, the likelihood ratio of Carlini et al., "Membership Inference Attacks From First Principles", S&P 2022: shadow
  models, each trained on half of the records, show how sure a model is of this very record when it has seen it and
  when it has not; two normal distributions are compared. Takes as many trainings as there are shadows. For few shadows
  all records share one spread, and a record's gap between seen and unseen is drawn towards the typical gap.

A model trained with (epsilon, delta) differential privacy allows a member to be told with a true-positive rate that is
above the false-positive rate by at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), whatever the attack (Kairouz, Oh,
Viswanath, "The Composition Theorem for Differential Privacy", 2015). `largest_advantage` gives it.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from wardround.core.errors import Refusal

Matrix = np.ndarray[Any, Any]
FEWEST_SHADOWS = 4
LOW = 0.01
"""The false-positive rate at which a careful attacker would work."""
LEAST_SPREAD = 1e-3
"""Of a record's confidences between shadow models: less is chance."""


class Membership(NamedTuple):
    """How well members are told from others."""

    advantage: float
    """True-positive rate minus false-positive rate at the attack's own threshold: 0 is chance."""
    error: float
    """Its standard error."""
    auc: float
    """0.5 is chance."""
    low: float
    """True-positive rate where the false-positive rate is 1 %: 0.01 is chance."""


def evaluate_attack(scores: Matrix, members: Matrix, threshold: float) -> Membership:
    """Higher scores mean members."""
    scores, members = np.ravel(scores), np.ravel(members).astype(bool)
    inside, outside = scores[members], scores[~members]
    if not len(inside) or not len(outside):
        raise Refusal(
            "a membership attack needs both training and test patients", where="attack", remedy="set a test share"
        )
    hit, alarm = float(np.mean(inside > threshold)), float(np.mean(outside > threshold))
    error = math.sqrt(hit * (1 - hit) / len(inside) + alarm * (1 - alarm) / len(outside))
    ranks = rankdata(np.concatenate([inside, outside]))[: len(inside)]
    auc = (ranks.sum() - len(inside) * (len(inside) + 1) / 2) / (len(inside) * len(outside))
    careful = np.sort(outside)[-max(1, math.ceil(LOW * len(outside)))]
    return Membership(hit - alarm, error, float(auc), float(np.mean(inside > careful)))


def yeom(losses: Matrix, members: Matrix) -> Membership:
    """The attack by threshold on one model's losses; the mean training loss is taken to be known."""
    losses, members = np.ravel(losses), np.ravel(members).astype(bool)
    return evaluate_attack(-losses, members, -float(losses[members].mean()))


def confidence(probability: Matrix) -> Matrix:
    """log(p / (1 - p)) of the probability given to the true label, which is about normal between models."""
    kept = np.clip(np.asarray(probability, np.float64), 1e-7, 1 - 1e-7)
    result: Matrix = np.log(kept) - np.log1p(-kept)
    return result


def lira(confidences: Matrix, members: Matrix) -> Matrix:
    """Log likelihood ratios of shape (models, records): each model in turn is attacked with the others as shadows."""
    models = len(confidences)
    if models - 1 < FEWEST_SHADOWS:
        raise Refusal(
            f"{models - 1} shadow models are too few to know two distributions",
            where="attack",
            remedy=f"train at least {FEWEST_SHADOWS}",
        )
    ratios = np.zeros_like(confidences, np.float64)
    for target in range(models):
        others = np.arange(models) != target
        seen, values = members[others].astype(bool), confidences[others]
        inside, outside = side_mean(values, seen), side_mean(values, ~seen)
        known = seen.any(axis=0) & ~seen.all(axis=0)
        spread = confidence_spread(values, seen, inside, outside)
        gap = shrink_gaps(inside - outside, spread**2 * (sampling_variance(seen) + sampling_variance(~seen)), known)
        middle = (inside + outside) / 2
        ratios[target] = np.where(known, gap * (confidences[target] - middle) / spread**2, 0.0)
    return ratios


def side_mean(values: Matrix, side: Matrix) -> Matrix:
    """A record's mean confidence over the models that have (or have not) seen it."""
    result: Matrix = np.where(side, values, 0.0).sum(axis=0) / np.maximum(1, side.sum(axis=0))
    return result


def sampling_variance(side: Matrix) -> Matrix:
    result: Matrix = 1 / np.maximum(1, side.sum(axis=0))
    return result


def confidence_spread(values: Matrix, seen: Matrix, inside: Matrix, outside: Matrix) -> float:
    """How much models that agree on whether they saw a record differ in their confidence, over all records."""
    squares = np.where(seen, values - inside, values - outside) ** 2
    freedom = values.size - seen.any(axis=0).sum() - (~seen).any(axis=0).sum()
    return max(LEAST_SPREAD, math.sqrt(float(squares.sum()) / max(1, int(freedom))))


def shrink_gaps(gaps: Matrix, noise: Matrix, known: Matrix) -> Matrix:
    """Each record's gap, drawn towards the typical one by as much as it may be chance."""
    if not known.any():
        return gaps
    typical = float(gaps[known].mean())
    between = max(0.0, float(gaps[known].var()) - float(noise[known].mean()))
    result: Matrix = typical + (gaps - typical) * between / (between + noise)
    return result


def largest_advantage(epsilon: float, delta: float) -> float:
    """What no attack can exceed on a model trained with this privacy."""
    if not (epsilon >= 0 and 0 <= delta <= 1):
        raise Refusal(f"epsilon {epsilon:g} with delta {delta:g} is impossible", where="attack", remedy="correct them")
    if epsilon > 700:
        return 1.0
    return min(1.0, (math.expm1(epsilon) + 2 * delta) / (math.exp(epsilon) + 1))
