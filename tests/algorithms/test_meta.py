"""MAML and Reptile against loops in NumPy, finite differences, and fixed points derived by hand."""

from typing import Any, Literal

import jax
import numpy as np
import pytest

from tests.support.by_hand.softmax import START, matrix_of, params_of, rows_at
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.meta import meta
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Message, Model, Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import one_site
from wardround.models.linear import linear

Kind = Literal["maml_first_order", "maml", "reptile"]
Numbers = np.ndarray[Any, Any]
SEED, INNER, OUTER, EPOCHS, SIZE, INNER_SIZE = 11, 0.4, 0.3, 2, 10, 7
PLAIN = identity()
ROUNDS = [(1, np.arange(7)), (2, np.array([0, 1, 2, 4, 5]))]
"""Site 2 is empty, site 4 has one row, site 3 one class only."""


def loss(w: Numbers, x: Numbers, y: Numbers) -> float:
    scores = x @ w
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]))


def probabilities(w: Numbers, x: Numbers) -> Numbers:
    odds = np.exp(x @ w)
    return odds / odds.sum(axis=1, keepdims=True)


def slope(w: Numbers, x: Numbers, y: Numbers) -> Numbers:
    """The mean gradient of softmax regression: x^T (p - onehot(y)) / n."""
    return x.T @ (probabilities(w, x) - np.eye(2)[y]) / len(y)


def hessian_times(w: Numbers, v: Numbers, x: Numbers) -> Numbers:
    """The derivative of x^T (p - onehot) / n along v: dp = p * (x v - sum_c p_c (x v)_c)."""
    p, along = probabilities(w, x), x @ v
    return x.T @ (p * (along - (p * along).sum(axis=1, keepdims=True))) / len(x)


def some(order: Numbers, size: int, index: int) -> Numbers:
    """The index-th batch of a pass, all rows for size 0, from the beginning again past the end."""
    if not size:
        return order
    index %= -(-len(order) // size)
    return order[index * size : (index + 1) * size]


def naive(federation: Federation, kind: Kind, size: int, inner_size: int) -> Numbers:
    """Per-FedAvg (Fallah et al., algorithm 1) with H on the inner batch, or Reptile (Nichol et al., algorithm 2)."""
    w = START
    for number, cohort in ROUNDS:
        moves, counts = [], []
        for site in cohort:
            x, y = rows_at(federation, site)
            if not len(y):
                continue
            passes = EPOCHS if kind == "reptile" else 2 * EPOCHS
            orders = visiting_order(SEED, number, np.array([site]), np.array([len(y)]), passes)
            u = w
            for epoch in range(EPOCHS):
                step_size = inner_size if kind == "reptile" else size
                for index in range(-(-len(y) // step_size) if step_size else 1):
                    if kind == "reptile":
                        batch = some(orders[epoch], inner_size, index)
                        u = u - INNER * slope(u, x[batch], y[batch])
                        continue
                    inner, outer = some(orders[2 * epoch], inner_size, index), some(orders[2 * epoch + 1], size, index)
                    ahead = u - INNER * slope(u, x[inner], y[inner])
                    g = slope(ahead, x[outer], y[outer])
                    u = u - OUTER * (g - INNER * hessian_times(u, g, x[inner]) * (kind == "maml"))
            moves.append(u - w)
            counts.append(len(y))
        w = w + (OUTER if kind == "reptile" else 1.0) * np.average(moves, axis=0, weights=counts)
    return w


def built(model: Model, kind: Kind, size: int = SIZE, inner_size: int = INNER_SIZE, **settings: Any) -> Algorithm:
    rates: dict[str, Any] = {"inner_learning_rate": INNER, "outer_learning_rate": OUTER, "local_epochs": EPOCHS}
    settings = {**rates, **settings}
    return meta(model, weighted_mean(), kind=kind, batch_size=size, inner_batch_size=inner_size, **settings)


@pytest.mark.parametrize(
    ("kind", "size", "inner_size"),
    [
        ("maml_first_order", SIZE, INNER_SIZE),
        ("maml", 7, 15),
        ("maml", 0, 0),
        ("reptile", SIZE, INNER_SIZE),
    ],
)
def test_equals_the_loop(kind: Kind, size: int, inner_size: int, ragged: Federation, model: Model) -> None:
    algorithm = built(model, kind, size, inner_size)
    with Simulation(ragged, seed=SEED, transform=PLAIN) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, params_of(START)), ROUNDS)
        common = matrix_of(jax.device_get(progress.server))
    wanted = naive(ragged, kind, size, inner_size)
    assert np.abs(wanted - START).max() > 0.1
    np.testing.assert_allclose(common, wanted, atol=5e-6)


def test_the_second_order_term_agrees_with_finite_differences(ragged: Federation, model: Model) -> None:
    """One outer step over all rows of one site moves by -rate times the gradient of f(w - a grad f(w)).

    That gradient by central differences of the loss itself, in double precision: no derivative of ours is used twice.
    """
    x, y = rows_at(ragged, 5)

    def after_one_step(w: Numbers) -> float:
        return loss(w - INNER * slope(w, x, y), x, y)

    differences = np.zeros_like(START)
    for place in np.ndindex(START.shape):
        nudge = np.zeros_like(START)
        nudge[place] = 1e-5
        differences[place] = (after_one_step(START + nudge) - after_one_step(START - nudge)) / 2e-5
    shard = one_site(x[:, :3].astype(np.float32), y, np.tile(np.arange(len(y)), (2, 1)))
    moves = {}
    for kind in ("maml", "maml_first_order"):
        algorithm = built(model, kind, 0, 0, local_epochs=1)
        said, _ = algorithm.client(Message({"params": params_of(START)}), (), shard, jax.random.key(0))
        moves[kind] = matrix_of(jax.device_get(said.arrays["update"])) / len(y)
    np.testing.assert_allclose(moves["maml"], -OUTER * differences, atol=1e-6)
    assert np.abs(moves["maml_first_order"] + OUTER * differences).max() > 1e-3


def two_slopes() -> Federation:
    """Rows (1, 1), (-1, -1) at site 0 and (2, -2), (-2, 2) at site 1: F_0 = (w - 1)^2, F_1 = 4 (w + 1)^2."""
    rows = [(np.array([[s], [-s]]), np.array([s * t, -s * t])) for s, t in ((1.0, 1.0), (2.0, -1.0))]
    return assemble([(f"site-{i}", [piece, piece, piece]) for i, piece in enumerate(rows)], Task((1,)))


def rests_at(algorithm: Algorithm) -> tuple[Numbers, float]:
    """Where the common model comes to rest, and the sites' mean squared error after they made it personal."""
    with Simulation(two_slopes(), transform=PLAIN) as engine:
        progress = engine.begin(algorithm, params_of(np.array([[3.0], [0.0]])))
        progress, _ = engine.train(algorithm, progress, [(number, np.arange(2)) for number in range(1, 65)])
        scores = engine.predict(algorithm, progress, "test")
    error = float(np.square(scores.predicted - scores.actual).mean())
    return matrix_of(jax.device_get(algorithm.params(progress.server)))[:, 0], error


@pytest.mark.slow
def test_rests_where_the_derivation_says_and_maml_is_the_best_start_for_one_step() -> None:
    """One full outer step a round, inner rate 1/16: a step shrinks w - 1 by 7/8 and w + 1 by 1/2.

    MAML minimizes (7/8)^2 (w - 1)^2 + 4 (1/2)^2 (w + 1)^2, at 49/64 (w - 1) + (w + 1) = 0: w = -15/113. First order
    steps along 2 (7/8) (w - 1) + 8 (1/2) (w + 1), 0 at w = -9/23. The common model that is best as it is rests at -3/5.
    Sites weigh alike (two rows each). Errors after one step: half of what MAML minimizes.
    Reptile with one inner step is FedAvg with one step, so it rests at -3/5 too.
    """
    model = linear(Task((1,)))
    rates: dict[str, Any] = {"inner_learning_rate": 1 / 16, "local_epochs": 1, "outer_learning_rate": 0.2}
    found = {
        "maml": rests_at(built(model, "maml", 0, 0, **rates)),
        "maml_first_order": rests_at(built(model, "maml_first_order", 0, 0, **rates)),
        "reptile": rests_at(built(model, "reptile", 0, 0, **{**rates, "outer_learning_rate": 1.0})),
    }
    for name, wanted in (
        ("maml", -15 / 113),
        ("maml_first_order", -9 / 23),
        ("reptile", -3 / 5),
    ):
        common, error = found[name]
        np.testing.assert_allclose(common, [wanted, 0], atol=1e-5)
        assert error == pytest.approx((49 / 64 * (wanted - 1) ** 2 + (wanted + 1) ** 2) / 2, abs=1e-5)
    assert found["maml"][1] < found["maml_first_order"][1] < found["reptile"][1]


def test_reptile_with_several_steps_rests_between() -> None:
    """K = 4 inner steps a round: 1 - a of the way to 1 and 1 - b of the way to -1, a = (7/8)^4, b = (1/2)^4.

    (1 - a) (w - 1) + (1 - b) (w + 1) = 0 gives w = (1695 - 3840) / (1695 + 3840) = -143/369, whatever the outer rate.
    """
    rates = {"inner_learning_rate": 1 / 16, "local_epochs": 4, "outer_learning_rate": 0.5}
    common, _ = rests_at(built(linear(Task((1,))), "reptile", 0, 0, **rates))
    np.testing.assert_allclose(common, [-143 / 369, 0], atol=1e-5)


def test_personal_models_are_inner_steps_from_the_common_one(ragged: Federation, model: Model) -> None:
    x, y = rows_at(ragged, 0)
    orders = visiting_order(SEED, 1, np.array([0]), np.array([len(y)]), 2)
    own = START
    for order in orders:
        for index in range(6):  # 40 rows in batches of 7
            batch = some(order, INNER_SIZE, index)
            own = own - INNER * slope(own, x[batch], y[batch])
    algorithm = built(model, "maml", personal_epochs=2)
    assert algorithm.personal is not None
    assert algorithm.personal.passes == 2
    shard = one_site(x[:, :3].astype(np.float32), y, orders)
    after = algorithm.personal.fit(Message({"params": params_of(START)}), (), shard, jax.random.key(0))
    np.testing.assert_allclose(matrix_of(jax.device_get(after)), own, atol=3e-6)


def test_full_maml_refuses_a_model_without_second_derivatives(ragged: Federation) -> None:
    torch = pytest.importorskip("torch")
    from wardround.models.from_torch import from_torch

    module = torch.nn.Linear(3, 2)
    network = from_torch(module, torch.nn.functional.cross_entropy, ragged.task)
    for kind in ("maml_first_order", "maml"):
        algorithm = built(network, kind)
        with Simulation(ragged, seed=SEED) as engine:
            if kind == "maml":
                with pytest.raises(Refusal, match="maml_first_order"):
                    engine.begin(algorithm, network.init(jax.random.key(0)))
            else:
                engine.begin(algorithm, network.init(jax.random.key(0)))
