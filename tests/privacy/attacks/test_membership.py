"""Members are told from others on models that learned by heart, and no better than the bound under privacy."""

import math

import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.privacy.attacks.membership import confidence, evaluate_attack, largest_advantage, lira, yeom
from wardround.privacy.distributed_noise import epsilon_from_rho

MODELS, RECORDS, FEATURES = 24, 60, 80


def trained(clip: float | None, noise: float, steps: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logistic regressions on halves of records with labels that mean nothing: all they can learn is by heart.

    Gives the probability of the true label, (models, records), and who was in; each row's gradient is clipped, and
    every step's sum gets Gaussian noise, so the privacy is known: steps / (2 noise²)-zCDP for one record more or less.
    """
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(RECORDS, FEATURES)) / math.sqrt(FEATURES)
    y = generator.integers(0, 2, RECORDS)
    members = np.array([generator.permutation(RECORDS) < RECORDS // 2 for _ in range(MODELS)])
    weights = np.zeros((MODELS, FEATURES))
    for _ in range(steps):
        residual = (1 / (1 + np.exp(-weights @ x.T)) - y) * members
        if clip is not None:
            length = np.abs(residual) * np.linalg.norm(x, axis=1)
            residual = residual * np.minimum(1, clip / np.maximum(length, 1e-12))
        slope = residual @ x
        if noise:
            slope = slope + generator.normal(size=slope.shape) * noise * (clip or 0)
        weights -= 0.5 * slope
    right = 1 / (1 + np.exp(-(weights @ x.T) * (2 * y - 1)))
    return right, members


def test_figures_by_hand():
    # Threshold 1.5: 2 of 4 members and 1 of 4 others are above. Pairs won: 3 > all 4, 2 > 3, 1 > 2 + half... :
    # members 3, 2, 1, 0 against others 2.5, 0.5, 0, -1: wins 4 + 3 + 3 + (1 and a tie) = 11.5 of 16.
    scores = np.array([3.0, 2.0, 1.0, 0.0, 2.5, 0.5, 0.0, -1.0])
    members = np.array([1, 1, 1, 1, 0, 0, 0, 0])
    found = evaluate_attack(scores, members, 1.5)
    assert found.advantage == 0.25
    assert found.error == pytest.approx(math.sqrt(0.25 / 4 + 3 / 16 / 4))
    assert found.auc == 11.5 / 16
    assert found.low == 0.25  # above the highest of the others is one of four
    with pytest.raises(Refusal, match="both training and test patients"):
        evaluate_attack(scores, np.ones(8), 0.0)


def test_the_threshold_of_yeom_is_the_mean_training_loss():
    # Members' losses 1, 3: mean 2. Below it: one of two members, one of three others.
    found = yeom(np.array([1.0, 3.0, 0.5, 2.5, 4.0]), np.array([1, 1, 0, 0, 0]))
    assert found.advantage == pytest.approx(1 / 2 - 1 / 3)


def test_the_likelihood_ratio_by_hand():
    # One record; shadows that saw it have confidences 3, 5 (mean 4), others 0, 2 (mean 1); the spread is sqrt(2).
    # The target's is 4: log ratio = (4 - 1)² / 4 - 0 = 9/4.
    confidences = np.array([[4.0], [3.0], [5.0], [0.0], [2.0]])
    members = np.array([[1], [1], [1], [0], [0]])
    assert lira(confidences, members)[0, 0] == pytest.approx(9 / 4)
    with pytest.raises(Refusal, match="3 shadow models"):
        lira(confidences[:4], members[:4])


def test_confidence_is_finite_also_for_certainty():
    assert confidence(np.array([0.5]))[0] == 0
    assert np.isfinite(confidence(np.array([0.0, 1.0]))).all()


def test_both_attacks_succeed_without_protection():
    right, members = trained(None, 0.0)
    simple = yeom(-np.log(right), members)
    strong = evaluate_attack(lira(confidence(right), members), members, 0.0)
    assert simple.advantage > 0.4
    assert strong.advantage > 0.8
    assert strong.low > 10 * 0.01


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_under_privacy_no_attack_passes_the_bound(epsilon):
    steps, delta = 30, 1e-3
    noise = next(z for z in np.geomspace(1, 1000, 500) if epsilon_from_rho(steps / (2 * z**2), delta) <= epsilon)
    right, members = trained(0.5, noise, steps)
    bound = largest_advantage(epsilon, delta)
    for found in (yeom(-np.log(right), members), evaluate_attack(lira(confidence(right), members), members, 0.0)):
        # One-sided at one in a thousand; the errors of records that share models are somewhat larger than told.
        assert found.advantage <= bound + 3.1 * found.error
    # And it is the noise that does it: with the same clipping alone members are told.
    plain, inside = trained(0.5, 0.0, steps)
    assert evaluate_attack(lira(confidence(plain), inside), inside, 0.0).advantage > bound + 0.1


def test_the_bound():
    assert largest_advantage(0.0, 0.0) == 0.0
    # Randomised response with epsilon = log 3 tells the truth with 3/4: true positives 3/4, false positives 1/4.
    assert largest_advantage(math.log(3), 0.0) == pytest.approx(0.5)
    assert largest_advantage(0.0, 0.01) == pytest.approx(0.01)
    assert largest_advantage(1e4, 0.0) == 1.0
    with pytest.raises(Refusal, match=r"(?i)epsilon .* is impossible"):
        largest_advantage(-1.0, 0.0)
