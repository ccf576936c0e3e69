"""Bets by hand, and by simulation: looked at a hundred times, they win by chance as seldom as was promised."""

import numpy as np
import pytest
from scipy.special import expit, logit

from wardround.monitor import bets
from wardround.monitor.cells import begin_column, symbols_of
from wardround.monitor.surveillance import bet_on_ranks

LIMIT = np.log(20)


def test_starts_share_a_capital_of_one():
    # With three starts of 1/2, 1/6 and 1/12, a quarter lies aside. Two bettors; factors 2 and 1/2 after the first,
    # 4 and 1 after the second, 1 and 3 after the third. Bettor 1 has 8/2 + 4/6 + 1/12 = 4.75, bettor 2 has
    # (3/2)/2 + 3/6 + 3/12 = 1.5. The capital is (4.75 + 1.5) / 2 + 1/4 = 3.375.
    capital = bets.first_capital(2)
    for factors in ((2.0, 0.5), (4.0, 1.0), (1.0, 3.0)):
        capital, path = bets.bet(bets.begin(capital), np.log([factors]))
    assert np.exp(path[-1]) == pytest.approx(3.375)
    assert np.exp(capital.now) == pytest.approx(3.375)
    # After the second: (8/2 + 4/6 + 0.5/2 + 1/6) / 2 + 1/3 = 2.875.
    assert np.exp(capital.peak) == pytest.approx(3.375)


def test_no_bet_on_calibration_gains_while_the_risks_are_right():
    # The expectation of every factor over the outcome is exactly 1 at the edge of the tolerance, and below 1 inside.
    risk = np.array([0.001, 0.03, 0.2, 0.5, 0.97])
    for tolerance in (0.0, 0.3):
        factors = np.exp([bets.calibration_bets(risk, np.full(5, ill), 0.1, tolerance) for ill in (0, 1)])
        up = slice(0, bets.CALIBRATION_BETS // 2)
        for real, exact in ((logit(risk), False), (logit(risk) + np.log1p(tolerance), True)):
            p = expit(real)[:, None]
            expected = (1 - p) * factors[0] + p * factors[1]
            assert (expected <= 1 + 1e-12).all()
            if exact:
                np.testing.assert_allclose(expected[:, up], 1.0, atol=1e-12)


def test_bets_on_ranks_are_fair():
    # The mean of every factor over a uniform rank is 1: by the midpoint rule on 100,000 points.
    ranks = (np.arange(100_000) + 0.5) / 100_000
    factors = np.exp(bets.rank_bets(ranks))
    assert factors.min() > 0
    np.testing.assert_allclose(factors.mean(axis=0), 1.0, atol=1e-6)


def test_ranks_by_hand():
    # Seen before: 2 in cell 0, 1 in cell 1. Then cell 1, 0, 2, each with a chance of 1/2.
    # Cell 1: 2 below, 2 alike with itself: (2 + 1) / 4. Cell 0: 3 alike: 1.5 / 5. Cell 2: 5 below, itself: 5.5 / 6.
    ranks, seen = bets.ranks_of(np.array([1, 0, 2]), np.array([2, 1, 0]), np.full(3, 0.5))
    np.testing.assert_allclose(ranks, [3 / 4, 1.5 / 5, 5.5 / 6])
    assert seen.tolist() == [3, 2, 1]


def test_ranks_in_portions_are_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    symbols, chance = rng.integers(0, 5, 100), rng.random(100)
    whole = bets.ranks_of(symbols, np.zeros(5, int), chance)
    monkeypatch.setattr(bets, "AT_ONCE", 7)
    np.testing.assert_array_equal(bets.ranks_of(symbols, np.zeros(5, int), chance)[0], whole[0])


def calibration_looks(rng, looks, rows, *, change=10**9, shift=0.0, tolerance=0.0):
    """The look at which the bets reach the limit of 20, or none."""
    capital = bets.first_capital(bets.CALIBRATION_BETS)
    for look in range(looks):
        odds = rng.normal(-1, 1, rows)
        ill = rng.random(rows) < expit(odds + (shift if look >= change else 0.0))
        capital, _ = bets.bet(bets.begin(capital), bets.calibration_bets(expit(odds), ill, 0.27, tolerance))
        if capital.peak >= LIMIT:
            return look
    return None


def input_looks(rng, looks, rows, *, change=10**9, shift=0.0, grid=0.0):
    on_grid = (lambda x: np.round(x / grid) * grid) if grid else (lambda x: x)
    column = begin_column("x", "number", on_grid(rng.normal(size=60)))
    for look in range(looks):
        values = on_grid(rng.normal(shift if look >= change else 0.0, 1.0, rows))
        column, _ = bet_on_ranks(column, symbols_of(column, values), rng.random(rows), is_new=True)
        if column.capital.peak >= LIMIT:
            return look
    return None


@pytest.mark.parametrize("looks", [calibration_looks, input_looks])
def test_a_change_is_found_soon(looks):
    # Twenty looks at 30 patients without, then with a change: none is found before it, all within 15 looks.
    found = [looks(np.random.default_rng(seed), 40, 30, change=20, shift=1.0) for seed in range(5)]
    assert all(look is not None and 20 <= look < 35 for look in found)


def test_a_small_error_within_the_tolerance_is_no_change():
    # Odds 20 % off are found with no tolerance, among 60,000 patients, and are within a tolerance of 30 %.
    rng = np.random.default_rng(0)
    shift = float(np.log(1.2))
    assert calibration_looks(rng, 30, 2000, change=0, shift=shift) is not None
    assert calibration_looks(rng, 30, 2000, change=0, shift=shift, tolerance=0.3) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("looks", "settings"),
    [(calibration_looks, {}), (input_looks, {}), (input_looks, {"grid": 1.0})],
    ids=["calibration", "inputs", "inputs with ties"],
)
def test_false_alarms_over_a_hundred_looks_are_as_rare_as_promised(looks, settings):
    # At a limit of 20 at most 5 %. Of 600 monitors that is 30; 44 would be 2.6 standard errors (5.3) above.
    rung = [looks(np.random.default_rng((1, number)), 100, 30, **settings) is not None for number in range(600)]
    assert sum(rung) <= 44
