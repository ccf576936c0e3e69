"""The loss early stopping watches: by hand, with empty sites, and when training has diverged."""

import math

import numpy as np
import pytest

from wardround.core.contracts import Scores, Task
from wardround.evaluate.losses import loss_of

ILL = Task((1,), ("well", "ill"))


def test_log_loss_by_hand_with_empty_sites_between() -> None:
    predicted = np.array([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]], np.float32)
    losses = loss_of(Scores(predicted, np.array([0, 0, 0]), np.array([0, 0, 2, 2, 3, 3])), ILL)
    # -log 1/2 and -log 1/4 at the second site: mean 1.5 log 2; certain and right at the fourth: 0.
    assert losses.sites == pytest.approx([math.nan, 1.5 * math.log(2), math.nan, 0.0, math.nan], nan_ok=True)
    assert losses.weighted == pytest.approx(3 * math.log(2) / 3)
    assert losses.rows.tolist() == [0, 2, 0, 1, 0]


def test_certain_and_wrong_is_clipped() -> None:
    losses = loss_of(Scores(np.array([[1.0, 0.0]]), np.array([1]), np.array([0, 1])), ILL)
    assert losses.weighted == pytest.approx(7 * math.log(10))


def test_squared_error_by_hand() -> None:
    losses = loss_of(Scores(np.array([1.0, 2.0, 5.0]), np.array([0.0, 2.0, 2.0]), np.array([0, 2, 3])), Task((1,)))
    assert losses.sites.tolist() == [0.5, 9.0]
    assert losses.weighted == pytest.approx(10 / 3)


def test_a_diverged_model_never_looks_good() -> None:
    predicted = np.array([[0.5, 0.5], [math.nan, math.nan]])
    losses = loss_of(Scores(predicted, np.array([0, 1]), np.array([0, 1, 2])), ILL)
    assert losses.weighted == math.inf
    assert losses.sites.tolist() == [pytest.approx(math.log(2)), math.inf]


def test_no_rows_have_no_loss() -> None:
    losses = loss_of(Scores(np.zeros((0, 2)), np.zeros(0), np.zeros(3, int)), ILL)
    assert math.isnan(losses.weighted)
    assert np.isnan(losses.sites).all()


def test_ten_thousand_sites_equal_a_loop_over_them() -> None:
    rng = np.random.default_rng(4)
    counts = rng.integers(0, 4, 10_000)
    first = np.concatenate([[0], np.cumsum(counts)])
    risk, actual = rng.random(first[-1]), rng.integers(0, 2, first[-1])
    losses = loss_of(Scores(np.stack([1 - risk, risk], axis=1), actual, first), ILL)
    each = -np.log(np.where(actual == 1, risk, 1 - risk))
    for site in range(0, 10_000, 97):
        part = each[first[site] : first[site + 1]]
        assert losses.sites[site] == pytest.approx(part.mean() if len(part) else math.nan, nan_ok=True)
    assert losses.weighted == pytest.approx(each.mean())
