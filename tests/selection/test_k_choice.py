import numpy as np
import pytest

from wardround.selection.k_choice import choose_k, choose_k_by_folds, halves, knee, renyi_divergence


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_renyi_divergence_of_two_normal_distributions(shift):
    # Of N(0, 1) and N(m, 1) it is alpha m^2 / 2: 0 and 0.45 at alpha 0.9.
    rng = np.random.default_rng(0)
    found = np.mean([renyi_divergence(rng.normal(size=3000), rng.normal(shift, 1, 3000)) for _ in range(5)])
    assert found == pytest.approx(0.9 * shift**2 / 2, abs=0.03)


def test_small_and_equal_samples_have_no_divergence():
    assert renyi_divergence(np.arange(3.0), np.arange(9.0)) == 0.0
    assert renyi_divergence(np.zeros(50), np.zeros(50)) == 0.0


def test_knee_by_hand():
    # From 10 to 1 the line passes 10, 7, 4, 1; the curve 10, 3, 2, 1 is 0, 4, 2, 0 below it.
    assert knee([10, 3, 2, 1]) == 1
    assert knee([5, 5, 5]) == 0


def test_halves_divide_patients_and_not_rows():
    who = np.repeat(np.arange(20), 3)
    first, second = halves(who, np.random.default_rng(0))
    assert not set(who[first]) & set(who[second])
    assert len(first) == len(second) == 30


def test_k_follows_the_size_of_the_region():
    # Who knows more depends on the half of the line one is in: hundreds of neighbours still tell it, two do not.
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (800, 1))
    losses = rng.exponential(1.0, (2, 800))
    losses[0] += np.where(x[:, 0] > 0, 0.5, -0.3).clip(0)
    losses[1] += np.where(x[:, 0] > 0, 0, 0.5)
    by_folds = choose_k_by_folds(x, losses, np.arange(800))
    assert by_folds.k >= 15
    assert by_folds.grid[-1] == 500  # 1,000 neighbours are more than there are
    by_divergence = choose_k(x, losses, np.arange(800), rng)
    assert by_divergence.k in by_divergence.grid
    assert len(by_divergence.curves) == 2
