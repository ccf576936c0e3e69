"""C-indices by hand and against lifelines."""

import numpy as np
import pytest

from tests.support.survival.sites import made_patients
from wardround.statistics.survival.concordance import censoring_of, comparable_pairs, pairs_of_each, uno_pairs


def test_by_hand():
    # Events at 1 and 3, censored at 2 and 3. Pairs: 1 before 2, 3, 3+ (three), 3 before 3+ (one): four in all. Risks
    # 5, 1, 5, 2: of the first the two lower ones are right, one is tied; 3 before 3+ is right. C = (3 + 1/2) / 4.
    pairs = comparable_pairs(np.array([1.0, 2, 3, 3]), np.array([1, 0, 1, 0]), np.array([5.0, 1, 5, 2]))
    assert pairs == (4, 3, 1)
    assert pairs.c_index == 3.5 / 4


def test_the_pairs_of_each_patient_by_hand():
    # The four pairs above: the event at 1 is in three, 2+ in one, the event at 3 in two, 3+ in two.
    assert pairs_of_each(np.array([1.0, 2, 3, 3]), np.array([1, 0, 1, 0])).tolist() == [3, 1, 2, 2]
    assert pairs_of_each(np.array([2.0, 2, 5]), np.array([1, 1, 0])).tolist() == [1, 1, 2]  # two events at one time


def test_uno_by_hand():
    # G falls at 2, when one of three at risk is censored: G = 2/3 after. The event at 1 has weight 1, that at 3 weight
    # 1 / (2/3)^2 = 9/4: comparable 3 + 9/4, right 2 + 9/4, tied 1.
    time, event, risk = np.array([1.0, 2, 3, 3]), np.array([1, 0, 1, 0]), np.array([5.0, 1, 5, 2])
    pairs = uno_pairs(time, event, risk, censoring_of(time, event))
    np.testing.assert_allclose(pairs, (5.25, 4.25, 1.0))
    assert uno_pairs(time, event, risk, censoring_of(time, event), horizon=3.0).comparable == 3
    none = np.ones(4)
    assert uno_pairs(time, none, risk, censoring_of(time, none)) == comparable_pairs(time, none, risk)


def test_lifelines_gives_the_same():
    lifelines = pytest.importorskip("lifelines.utils")
    rows = made_patients()
    time, event, risk = rows["time"].to_numpy(), rows["event"].to_numpy(), rows["age"].round(-1).to_numpy()
    other = lifelines.concordance_index(time, -risk, event)
    np.testing.assert_allclose(comparable_pairs(time, event, risk).c_index, other, rtol=1e-12)


def test_no_pair_has_no_index():
    assert comparable_pairs(np.array([1.0, 2]), np.zeros(2), np.array([1.0, 2])).c_index is None


def test_counts_are_those_of_all_pairs_one_by_one():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = int(rng.integers(0, 40))
        time, event = rng.integers(0, 8, rows).astype(float), rng.integers(0, 2, rows)
        risk, weight = rng.integers(0, 5, rows).astype(float), rng.random(rows)
        later = [
            (i, j) for i in range(rows) for j in range(rows) if event[i] and (time[j], event[j] == 0) > (time[i], False)
        ]
        expected = (
            sum(weight[i] for i, j in later),
            sum(weight[i] for i, j in later if risk[j] < risk[i]),
            sum(weight[i] for i, j in later if risk[j] == risk[i]),
        )
        np.testing.assert_allclose(comparable_pairs(time, event, risk, weight=weight), expected, atol=1e-9)
