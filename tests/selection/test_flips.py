import numpy as np
import pytest
from scipy.stats import binomtest

from wardround.selection.evaluation import holm, judge
from wardround.selection.flips import Flips, binomial_p, corrected_p, count_flips, p_by_patient, signs_of, success_share
from wardround.selection.shares import more_there


@pytest.mark.parametrize(("right", "wrong"), [(26, 53), (280, 156), (195, 88), (128, 96)])
def test_the_p_values_of_the_thesis(right, wrong):
    # Table 3.1 of Caldas 2022 prints 9.99e-1, 1.52e-9, 9.04e-11 and 1.90e-2 for these flips (32.91 % of 79, ...).
    printed = {26: 9.99e-1, 280: 1.52e-9, 195: 9.04e-11, 128: 1.90e-2}[right]
    found = float(binomial_p(np.array(right), np.array(wrong)))
    assert found == pytest.approx(binomtest(right, right + wrong, 0.5, alternative="greater").pvalue)
    assert found == pytest.approx(printed, rel=0.01)


def test_signs_by_hand():
    own, other, outcome = np.array([1, 1, 0, 0]), np.array([1, 0, 1, 0]), np.array([1, 0, 0, 1])
    signs = signs_of(own, other, outcome)
    assert signs.tolist() == [0, 1, -1, 0]
    assert count_flips(signs) == Flips(1, 1)


def test_one_look_at_one_row_a_patient_is_the_binomial_test():
    signs = np.array([1] * 14 + [-1] * 6)
    found = corrected_p(signs, np.array([20]), np.arange(20), np.random.default_rng(0), draws=9999)
    assert found == pytest.approx(float(binomial_p(np.array(14), np.array(6))), abs=0.01)  # 0.0577


def test_many_looks_at_fair_coins_stay_at_their_level():
    # 60 fair coins looked at after each: the smallest p-value is below 0.05 far more often than in 5 % of the runs, the
    # corrected one is not. Among 200 runs 5 % give 10, and more than 19 with probability 0.4 %.
    rng = np.random.default_rng(1)
    plain = corrected = 0
    for _ in range(200):
        signs = rng.integers(0, 2, 60) * 2 - 1
        right = np.cumsum(signs > 0)
        plain += binomial_p(right, np.arange(1, 61) - right).min() <= 0.05
        corrected += corrected_p(signs, np.arange(1, 61), np.arange(60), rng, draws=199) <= 0.05
    assert plain > 25
    assert corrected <= 19


def test_rows_of_one_patient_are_one_opinion():
    # Twelve rows that are right look sure (p = 0.0002); as rows of two patients they are two coins: p = 0.25, or in the
    # normal form 6 * 2 / sqrt(72) = 1.414 standard deviations, p = 0.0786.
    signs, one, two = np.ones(12), np.arange(12), np.repeat([0, 1], 6)
    rng = np.random.default_rng(0)
    assert corrected_p(signs, np.array([12]), one, rng) < 0.01
    assert corrected_p(signs, np.array([12]), two, rng, draws=4999) == pytest.approx(0.25, abs=0.03)
    assert p_by_patient(signs, two) == pytest.approx(0.0786, abs=1e-4)
    narrow, wide = success_share(signs, one), success_share(signs, two)
    assert narrow.low == pytest.approx(0.7575, abs=1e-4)  # Wilson's lower end for 12 of 12
    assert wide.low == pytest.approx(0.3424, abs=1e-4)  # and for 2 of 2


def test_handed_over_patients_by_hand():
    # Rows 0 to 2 go to the second of two others; it is right at 0 and 2, the own classifier at 1 only.
    signs = np.array([[0, 0, 0, 0], [1, -1, 1, 0]])
    right = np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 1, 1]])
    found = judge(np.array([1, 1, 1, -1]), signs, right, np.array([7, 8, 8, 9]))
    assert (found.rows, found.all_rows, found.patients, found.sources) == (3, 4, 2, (0, 3))
    assert found.flips == Flips(2, 1)
    assert (found.local_accuracy, found.other_accuracy) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    nobody = judge(np.full(4, -1), signs, right, np.arange(4))
    assert (nobody.rows, nobody.p_value, nobody.local_accuracy, nobody.success.value) == (0, 1.0, None, None)


def test_holm_agrees_with_a_library():
    statistics = pytest.importorskip("statsmodels.stats.multitest")
    p_values = np.random.default_rng(0).random(20) ** 3
    np.testing.assert_allclose(holm(p_values), statistics.multipletests(p_values, method="holm")[1])


def test_more_of_them_there():
    # 100 of 1,000 here and 150 of 1,000 there: pooled 0.125, error sqrt(0.125 * 0.875 * 0.002) = 0.01479, z = -3.381.
    assert more_there(100, 1000, 150, 1000).p_value == pytest.approx(0.000361, abs=1e-5)
    assert more_there(150, 1000, 100, 1000).p_value > 0.999
    assert more_there(0, 0, 1, 2).p_value == 1.0
