"""All rows in one place: the loop over the pooled rows, and what FedAvg gives where there is only one site."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.by_hand.softmax import START, matrix_of, params_of, slope
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.centralized import centralized
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Model, RoundRecord
from wardround.core.federation import Federation
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation

Numbers = np.ndarray[Any, Any]
SEED, RATE, SIZE, EPOCHS, MOMENTUM = 11, 0.3, 10, 2, 0.5
PLAIN = identity()


@pytest.fixture(scope="module")
def pooling(model: Model) -> Algorithm:
    return centralized(
        model, learning_rate=RATE, local_epochs=EPOCHS, batch_size=SIZE, momentum=MOMENTUM, solver="descent"
    )


@pytest.fixture(scope="module")
def averaging(model: Model) -> Algorithm:
    return fed_avg(model, weighted_mean(), learning_rate=RATE, local_epochs=EPOCHS, batch_size=SIZE, momentum=MOMENTUM)


def trained(
    algorithm: Algorithm, federation: Federation, cohorts: list[list[int]]
) -> tuple[Numbers, list[RoundRecord]]:
    with Simulation(federation, seed=SEED, transform=PLAIN) as engine:
        progress = engine.begin(algorithm, params_of(START))
        rounds = [(number, np.array(cohort)) for number, cohort in enumerate(cohorts, 1)]
        progress, records = engine.train(algorithm, progress, rounds)
    return matrix_of(algorithm.params(progress.server)), records


def test_equals_the_loop_over_all_rows(pooling: Algorithm, ragged: Federation) -> None:
    """Every row is there in every round, whoever would have taken part."""
    rows = ragged.rows_of("train")
    x, y = np.hstack([ragged.x[rows], np.ones((len(rows), 1))]).astype(np.float64), ragged.y[rows]
    w = START
    for number in (1, 2):
        velocity = np.zeros_like(w)
        for order in visiting_order(SEED, number, np.array([0]), np.array([165]), EPOCHS):
            for begin in range(0, 165, SIZE):
                batch = order[begin : begin + SIZE]
                velocity = MOMENTUM * velocity + slope(w, x[batch], y[batch])
                w = w - RATE * velocity
    after, records = trained(pooling, ragged, [[0, 1, 2, 3, 4, 5, 6], [4]])
    assert np.abs(w - START).max() > 0.3
    np.testing.assert_allclose(after, w, atol=5e-6)
    seen = [(record.sites, record.count, record.rows, record.bytes_down, record.bytes_up) for record in records]
    assert seen == [(("all",), 1, 165, 0, 0)] * 2


def test_is_fed_avg_at_one_site_that_holds_all_rows(
    pooling: Algorithm, averaging: Algorithm, ragged: Federation
) -> None:
    one, _ = trained(pooling, ragged, [[0], [0]])
    other, records = trained(averaging, ragged.pool(), [[0], [0]])
    # w + (v - w) may differ from v in the last bit, and does so in both alike.
    assert np.array_equal(one, other)
    # Unlike the baseline, a federation of one site does send: 32 bytes down, 36 up with its weight.
    assert [(record.bytes_down, record.bytes_up) for record in records] == [(32, 36)] * 2


def test_one_site_federated_is_centralised(
    pooling: Algorithm, averaging: Algorithm, make_federation: Callable[[list[int]], Federation]
) -> None:
    lonely = make_federation([50])
    one, _ = trained(pooling, lonely, [[0], [0]])
    other, _ = trained(averaging, lonely, [[0], [0]])
    assert np.array_equal(one, other)
    assert np.abs(one - START).max() > 0.1


def test_several_sites_federated_are_not(pooling: Algorithm, averaging: Algorithm, ragged: Federation) -> None:
    """The tests above would be empty if pooling and averaging gave the same everywhere."""
    everyone = [list(range(7))] * 2
    one, _ = trained(pooling, ragged, everyone)
    other, _ = trained(averaging, ragged, everyone)
    assert np.abs(one - other).max() > 0.05


def test_only_the_baseline_pools_and_is_silent(pooling: Algorithm, averaging: Algorithm) -> None:
    assert (pooling.pools, pooling.silent) == (True, True)
    assert (averaging.pools, averaging.silent) == (False, False)


def test_a_logistic_model_is_fitted_to_the_end(model: Model, ragged: Federation) -> None:
    """After a few rounds the fit is scikit-learn's, whatever the rate: weights, ridge and risks."""
    from sklearn.linear_model import LogisticRegression

    rows = ragged.rows_of("train")
    x, y = ragged.x[rows].astype(np.float64), ragged.y[rows]
    for ridge, rate in ((1.0, 0.001), (20.0, 1.0)):
        after, _ = trained(centralized(model, ridge=ridge, learning_rate=rate), ragged, [[0]] * 4)
        # Two columns with a pull on both are one column w with half of it: |w|^2 / 4 + |w|^2 / 4 = |w|^2 / 2.
        oracle = LogisticRegression(C=2 / ridge, tol=1e-8, max_iter=1000).fit(x, y)
        column = after[:, 1] - after[:, 0]
        np.testing.assert_allclose(column[:-1], oracle.coef_[0], atol=2e-3)
        np.testing.assert_allclose(column[-1], oracle.intercept_[0], atol=2e-3)


def test_a_rate_does_not_move_the_full_fit(model: Model, ragged: Federation) -> None:
    one, other = (trained(centralized(model, learning_rate=rate), ragged, [[0]] * 3)[0] for rate in (0.001, 1.0))
    assert np.array_equal(one, other)
