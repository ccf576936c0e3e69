"""FedAvg against the loop of its pseudo-code, in float64 with a gradient of its own, and against numbers by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.by_hand.softmax import START, matrix_of, params_of, rows_at, slope
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.answers import Weights
from wardround.core.chain import identity
from wardround.core.contracts import Model, Task
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear

Numbers = np.ndarray[Any, Any]
SEED = 11
PLAIN = identity()
ROUNDS = [(1, np.arange(7)), (2, np.array([0, 1, 4])), (3, np.array([2, 3, 5, 6]))]
"""Site 2 is empty, site 4 has one row, site 3 one class only."""


def naive(
    federation: Federation,
    w: Numbers,
    *,
    rate: float,
    epochs: int,
    size: int,
    momentum: float,
    uniform: bool,
    server: float,
) -> Numbers:
    """McMahan et al., algorithm 1, one site and one batch after the other."""
    for number, cohort in ROUNDS:
        updates, weights = [], []
        for site in cohort:
            x, y = rows_at(federation, site)
            if not len(y):
                continue
            own, velocity = w, np.zeros_like(w)
            for order in visiting_order(SEED, number, np.array([site]), np.array([len(y)]), epochs):
                for begin in range(0, len(y), size or len(y)):
                    batch = order[begin : begin + (size or len(y))]
                    velocity = momentum * velocity + slope(own, x[batch], y[batch])
                    own = own - rate * velocity
            updates.append(own - w)
            weights.append(1 if uniform else len(y))
        w = w + server * np.average(updates, axis=0, weights=weights)
    return w


@pytest.mark.parametrize(
    ("weights", "epochs", "size", "momentum", "server"),
    [
        ("samples", 2, 10, 0.9, 1.0),  # 23 rows: two batches of ten and one of three
        ("uniform", 1, 10, 0.0, 0.5),
        ("samples", 3, 0, 0.0, 1.0),
        ("uniform", 1, 100, 0.5, 1.0),  # a batch longer than any site
    ],
)
def test_equals_the_loop_over_ragged_sites(
    weights: Weights, epochs: int, size: int, momentum: float, server: float, ragged: Federation, model: Model
) -> None:
    algorithm = fed_avg(
        model,
        weighted_mean(),
        learning_rate=0.3,
        local_epochs=epochs,
        batch_size=size,
        momentum=momentum,
        weights=weights,
        server_learning_rate=server,
    )
    with Simulation(ragged, seed=SEED, transform=PLAIN) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, params_of(START)), ROUNDS)
    wanted = naive(
        ragged,
        START,
        rate=0.3,
        epochs=epochs,
        size=size,
        momentum=momentum,
        uniform=weights == "uniform",
        server=server,
    )
    assert np.abs(wanted - START).max() > 0.1
    np.testing.assert_allclose(matrix_of(algorithm.params(progress.server)), wanted, atol=2e-6)


def targets(*values: list[float]) -> Federation:
    """Sites whose rows are x = 0 with these targets: linear regression has nothing but its intercept to learn."""
    nothing = (np.zeros((0, 1)), np.zeros(0))
    return assemble(
        [(f"site-{i}", [(np.zeros((len(y), 1)), np.array(y)), nothing, nothing]) for i, y in enumerate(values)],
        Task((1,)),
    )


@pytest.mark.parametrize(("weights", "wanted"), [("samples", 1.875), ("uniform", 2.25)])
def test_one_round_by_hand(weights: Weights, wanted: float) -> None:
    """Intercepts only, loss (b - y)^2, all rows at once, rate 1/4: each of two passes halves the distance to the mean.

    Site 0 has rows 0, 2, 1 (mean 1) and goes 0, 1/2, 3/4. Site 1 has one row 5 and goes 0, 5/2, 15/4.
    By patients: (3 * 3/4 + 1 * 15/4) / 4 = 6 / 4 = 1.5. By votes: (3/4 + 15/4) / 2 = 2.25.
    A server rate of 1.25 makes the first 1.875; the second is left at 1.
    """
    task = targets([0.0, 2.0, 1.0], [5.0])
    rate = 1.25 if weights == "samples" else 1.0
    algorithm = fed_avg(
        linear(task.task),
        weighted_mean(),
        learning_rate=0.25,
        local_epochs=2,
        batch_size=0,
        weights=weights,
        server_learning_rate=rate,
    )
    with Simulation(task, transform=PLAIN) as engine:
        progress = engine.begin(algorithm, params_of(np.zeros((2, 1))))
        progress, records = engine.train(algorithm, progress, [(1, np.arange(2))])
    assert matrix_of(algorithm.params(progress.server))[:, 0].tolist() == [0.0, wanted]
    # Kernel and bias down, 8 bytes; up the same and the weight, 12 bytes; two sites.
    assert [(record.rows, record.bytes_down, record.bytes_up) for record in records] == [(4, 16, 24)]


def test_sites_that_agree_are_one_site(make_federation: Callable[[list[int]], Federation], model: Model) -> None:
    """Three sites with the very same rows learn, all rows at once, what one of them learns alone."""
    one = make_federation([20])
    x, y = (array[:20] for array in (one.x, one.y))
    nothing = (x[:0], y[:0])
    three = assemble([(name, [(x, y), nothing, nothing]) for name in "abc"], one.task)
    algorithm = fed_avg(model, weighted_mean(), learning_rate=0.3, local_epochs=2, batch_size=0)
    ends = []
    for federation in (one, three):
        with Simulation(federation, transform=PLAIN) as engine:
            progress = engine.begin(algorithm, params_of(START))
            progress, _ = engine.train(algorithm, progress, [(1, np.arange(len(federation.sites)))])
            ends.append(matrix_of(algorithm.params(progress.server)))
    assert np.abs(ends[0] - START).max() > 0.05
    np.testing.assert_allclose(ends[1], ends[0], atol=1e-6)
