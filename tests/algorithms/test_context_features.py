"""Context features against a NumPy loop, where they must be FedAvg or plain columns, and at a site never seen."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.by_hand.softmax import START, matrix_of, params_of
from wardround.aggregators.class_weighted import class_weighted
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.context_features import context_features, context_of, inputs_of
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Message, Model, Params, Progress, Scores, Shard, Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import one_site
from wardround.models.cnn import cnn
from wardround.models.linear import linear
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp

Numbers = np.ndarray[Any, Any]
SEED, RATE, EPOCHS, SIZE = 11, 0.3, 2, 10
PLAIN = identity()
ROUNDS = [(1, np.arange(7)), (2, np.array([0, 2, 5, 6])), (3, np.array([0, 1, 3, 4]))]
"""Site 2 is empty, site 4 has one row, site 3 one class only."""


def rows_at(federation: Federation, site: int, part: str = "train") -> tuple[Numbers, Numbers]:
    first, count = (column[site] for column in federation.part(part))
    return federation.x[first : first + count].astype(np.float64), federation.y[first : first + count]


def trained(
    algorithm: Algorithm, federation: Federation, start: Params, rounds: Any = ROUNDS
) -> tuple[Progress, Scores]:
    with Simulation(federation, seed=SEED, transform=PLAIN, device_count=1) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, start), rounds)
        return jax.device_get(progress), engine.predict(algorithm, progress, "test")


def chances(w: Numbers, x: Numbers) -> Numbers:
    odds = np.exp(x @ w[:-1] + w[-1])
    return odds / odds.sum(axis=1, keepdims=True)


def naive(federation: Federation, velocity_kept: float) -> tuple[Numbers, Numbers]:
    """The weights and A after all rounds, by the chain rule: with z = x + cA, e = p - onehot(y) and B rows,

    dW = z^T e / B, db = sum e / B, and since every row moves by the same cA, dA = outer(c, sum e W^T / B).
    """
    w, a = START, np.zeros((3, 3))
    for number, cohort in ROUNDS:
        total_w, total_a, patients = np.zeros_like(w), np.zeros_like(a), 0
        for site in cohort:
            x, y = rows_at(federation, site)
            if not len(y):
                continue
            context = x.mean(axis=0)
            own_w, own_a = w, a
            speed_w, speed_a = np.zeros_like(w), np.zeros_like(a)
            for order in visiting_order(SEED, number, np.array([site]), np.array([len(y)]), EPOCHS):
                for begin in range(0, len(y), SIZE):
                    batch = order[begin : begin + SIZE]
                    z = x[batch] + context @ own_a
                    e = (chances(own_w, z) - np.eye(2)[y[batch]]) / len(batch)
                    slope_w = np.vstack([z.T @ e, e.sum(axis=0)])
                    slope_a = np.outer(context, e.sum(axis=0) @ own_w[:-1].T)
                    speed_w, speed_a = velocity_kept * speed_w + slope_w, velocity_kept * speed_a + slope_a
                    own_w, own_a = own_w - RATE * speed_w, own_a - RATE * speed_a
            total_w, total_a = total_w + len(y) * (own_w - w), total_a + len(y) * (own_a - a)
            patients += len(y)
        w, a = w + total_w / patients, a + total_a / patients
    return w, a


def test_equals_the_loop_while_sites_come_and_go(ragged: Federation, model: Model) -> None:
    algorithm = context_features(
        model, weighted_mean(), learning_rate=RATE, local_epochs=EPOCHS, batch_size=SIZE, momentum=0.5
    )
    progress, scores = trained(algorithm, ragged, params_of(START))
    w, a = naive(ragged, 0.5)
    assert np.abs(a).max() > 0.01
    np.testing.assert_allclose(matrix_of(progress.server), w, atol=5e-6)
    np.testing.assert_allclose(progress.server["context/kernel"], a, atol=5e-6)
    for site in range(7):
        (x, y), (held_out, _) = rows_at(ragged, site), rows_at(ragged, site, "test")
        context = x.mean(axis=0) if len(y) else np.zeros(3)
        predicted = scores.predicted[scores.first[site] : scores.first[site + 1]]
        np.testing.assert_allclose(predicted, chances(w, held_out + context @ a), atol=5e-6)


def test_one_step_from_the_start_is_fed_avg_in_the_models_own_arrays(ragged: Federation, model: Model) -> None:
    settings: dict[str, Any] = {"learning_rate": RATE, "batch_size": 0}
    first = ROUNDS[:1]
    plain, _ = trained(fed_avg(model, weighted_mean(), **settings), ragged, params_of(START), first)
    known, _ = trained(context_features(model, weighted_mean(), **settings), ragged, params_of(START), first)
    np.testing.assert_allclose(matrix_of(known.server), matrix_of(plain.server), atol=1e-6)
    assert np.abs(known.server["context/kernel"]).max() > 1e-3


def balanced() -> Federation:
    """Sites whose rows come in pairs x, -x, so that every mean is exactly 0."""
    generator = np.random.default_rng(3)

    def rows(count: int) -> tuple[Numbers, Numbers]:
        half = generator.normal(0, 1, (count // 2, 3)).astype(np.float32)
        x = np.concatenate([half, -half])
        return x, generator.random(count) < 1 / (1 + np.exp(-x.sum(axis=1)))

    return assemble([(f"site-{i}", [rows(n), rows(2), rows(8)]) for i, n in enumerate((30, 44, 8))], TASK)


TASK = Task((3,), ("no", "yes"))


@pytest.mark.parametrize("rank", [1, 64])
def test_where_all_contexts_are_nothing_it_is_fed_avg(rank: int, model: Model) -> None:
    federation, rounds = balanced(), [(number, np.arange(3)) for number in range(1, 6)]
    plain = trained(fed_avg(model, weighted_mean()), federation, params_of(START), rounds)
    known = trained(context_features(model, weighted_mean(), rank=rank), federation, params_of(START), rounds)
    np.testing.assert_allclose(matrix_of(known[0].server), matrix_of(plain[0].server), atol=1e-6)
    np.testing.assert_allclose(known[1].predicted, plain[1].predicted, atol=1e-6)


def contextual(sites: int, rows: int, seed: int, effect: float) -> tuple[Federation, list[Numbers]]:
    """Sites with means of their own; y rises with x, and by `effect` with the first mean of the site."""
    generator = np.random.default_rng(seed)
    means = [generator.normal(0, 1, 2) for _ in range(sites)]

    def some(count: int, mean: Numbers) -> tuple[Numbers, Numbers]:
        x = mean + generator.normal(0, 1, (count, 2))
        return x, x @ np.array([1.0, 0.5]) + effect * mean[0] + generator.normal(0, 0.3, count)

    parts = [(f"site-{i}", [some(rows, mean), some(1, mean), some(200, mean)]) for i, mean in enumerate(means)]
    return assemble(parts, Task((2,))), means


def test_a_linear_model_ends_at_least_squares_with_columns_of_the_means() -> None:
    """Gradient descent over all rows; the best that (x, mean, 1) can do is NumPy's least squares."""
    federation, _ = contextual(6, 30, 0, -1.5)
    sites = [rows_at(federation, site) for site in range(6)]
    wide = np.vstack([np.hstack([x, np.tile(x.mean(axis=0), (len(x), 1)), np.ones((len(x), 1))]) for x, _ in sites])
    y = np.concatenate([y for _, y in sites])
    best = np.linalg.lstsq(wide, y, rcond=None)[0]
    narrow = np.delete(wide, [2, 3], axis=1)
    without = np.square(y - narrow @ np.linalg.lstsq(narrow, y, rcond=None)[0]).mean()
    wanted = np.square(y - wide @ best).mean()
    assert wanted < 0.3 * without
    algorithm = context_features(linear(federation.task), weighted_mean(), learning_rate=0.05, batch_size=0)
    start = linear(federation.task).init(jax.random.key(0))
    server = trained(algorithm, federation, start, [(number, np.arange(6)) for number in range(1, 1501)])[0].server
    w, b, a = (np.asarray(server[name]) for name in ("dense_0/kernel", "dense_0/bias", "context/kernel"))
    np.testing.assert_allclose(np.concatenate([w[:, 0], (a @ w)[:, 0], b]), best, atol=2e-3)


@pytest.mark.slow
def test_sites_never_seen_are_predicted_better_than_by_fed_avg() -> None:
    """Five sites take no part in training, and their training rows have no outcomes worth the name.

    Their squared error is the noise, 0.09, and that of the mean of 40 rows times the effect, 1.5^2 / 40 = 0.06. FedAvg
    can tell the site's mean only from the patient's own x, half of whose variance it is: about 1.5^2 / 2 more.
    """
    federation, _ = contextual(35, 40, 1, -1.5)
    for site in range(30, 35):
        first, count = (column[site] for column in federation.part("train"))
        federation.y[first : first + count] = 0.0
    network = linear(federation.task)
    rounds = [(number, np.arange(30)) for number in range(1, 101)]
    errors = {}
    for name, algorithm in {
        "plain": fed_avg(network, weighted_mean(), learning_rate=0.05),
        "known": context_features(network, weighted_mean(), learning_rate=0.05),
    }.items():
        scores = trained(algorithm, federation, network.init(jax.random.key(0)), rounds)[1]
        new = slice(scores.first[30], None)
        errors[name] = float(np.square(scores.predicted[new] - scores.actual[new]).mean())
    assert errors["known"] < 0.25, errors
    assert errors["plain"] > 0.6, errors


def test_more_inputs_than_the_rank_make_two_thin_matrices() -> None:
    """Five inputs and rank 2: 10 + 10 numbers instead of 25, and nothing is moved at the start."""
    network = mlp(Task((5,), ("no", "yes")), hidden=(4,))
    params = network.init(jax.random.key(0))
    algorithm = context_features(network, weighted_mean(), rank=2)
    state = algorithm.init(params, 3)
    assert {name: state[name].shape for name in state if name.startswith("context")} == {
        "context/thin": (5, 2),
        "context/back": (2, 5),
    }
    x = np.random.default_rng(0).normal(3, 1, (20, 5)).astype(np.float32)
    shard = one_site(x, np.arange(20, dtype=np.int32) % 2, np.arange(20)[None])
    assert algorithm.personal is not None
    message = Message({"params": state})
    fitted = algorithm.personal.fit(message, (), shard, jax.random.key(0))
    assert np.array_equal(fitted["context/shift"], np.zeros(5))
    np.testing.assert_allclose(algorithm.predict(fitted, x), network.predict(params, x), atol=1e-6)
    # A step moves the second matrix (and the first stays until then), so that cA is of rank 1 and not 0.
    said, _ = algorithm.client(message, (), shard, jax.random.key(0))
    assert np.abs(said.arrays["update"]["context/back"]).max() > 0
    # The common model without a context is the model itself.
    np.testing.assert_array_equal(algorithm.predict(state, x), network.predict(params, x))


def test_the_context_is_the_mean_of_the_sites_own_rows_only() -> None:
    """Rows of others stand before and behind; one of them is no number."""
    x = np.array([[9, 9], [1, 2], [3, 4], [8, 3], [np.nan, 7]], np.float32)
    padded = np.concatenate([x, np.full((64, 2), np.nan, np.float32)])
    at = [jnp.int32(n) for n in (1, 3, 3, 0)]
    shard = Shard(padded, np.zeros(69, np.int32), at[0], at[1], at[2], at[3])
    np.testing.assert_allclose(context_of(shard), [4, 3])


@pytest.mark.slow
def test_images_are_flattened_and_bytes_count_from_0_to_1() -> None:
    task = Task((8, 8), ("no", "yes"))
    generator = np.random.default_rng(0)

    def rows(count: int) -> tuple[Numbers, Numbers]:
        y = generator.integers(0, 2, count)
        return (generator.integers(0, 100, (count, 8, 8)) + 100 * y[:, None, None]).astype(np.uint8), y

    federation = assemble([(f"site-{i}", [rows(n), rows(2), rows(9)]) for i, n in enumerate((12, 30))], task)
    network = cnn(task, channels=(2,), kernel=3, dense=4)
    start = network.init(jax.random.key(0))
    algorithm = context_features(network, weighted_mean(), shape=(8, 8), rank=5)
    progress, scores = trained(algorithm, federation, start, [(1, np.arange(2)), (2, np.arange(2))])
    server = progress.server
    inner = {name: array for name, array in server.items() if not name.startswith("context")}
    x, _ = rows_at(federation, 1)
    shift = (x.mean(axis=0).ravel() / 255 @ server["context/thin"] @ server["context/back"]).reshape(8, 8)
    assert np.abs(shift).max() > 1e-5
    held_out, _ = rows_at(federation, 1, "test")
    wanted = network.predict(inner, (held_out / 255 + shift).astype(np.float32))
    np.testing.assert_allclose(scores.predicted[scores.first[1] :], wanted, atol=1e-6)


def test_an_aggregator_that_asks_for_class_shares_is_answered(ragged: Federation, model: Model) -> None:
    progress, _ = trained(context_features(model, class_weighted()), ragged, params_of(START))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(progress))


def test_the_size_of_a_row_is_told_from_the_model() -> None:
    for network, size in (
        (logistic(Task((7,), ("a", "b", "c"))), 7),
        (linear(Task((4,))), 4),
        (mlp(Task((6, 6), ("a", "b")), hidden=(12, 5)), 36),
        (mlp(Task((2,), ("a", "b")), hidden=(2,)), 2),
    ):
        assert inputs_of(network, network.init(jax.random.key(0))) == size


def test_what_cannot_be_told_or_is_wrong_is_refused(ragged: Federation, model: Model) -> None:
    network = cnn(Task((8, 8), ("no", "yes")), channels=(2,), dense=4)
    with pytest.raises(Refusal, match="does not show how many numbers a row has"):
        context_features(network, weighted_mean()).init(network.init(jax.random.key(0)), 2)
    with pytest.raises(Refusal, match=r"rows of 4 numbers.*shape = \[3\]"), Simulation(ragged, seed=0) as engine:
        engine.begin(context_features(model, weighted_mean(), shape=(2, 2)), params_of(START))
    with pytest.raises(Refusal, match="layer called 'context'"):
        context_features(model, weighted_mean()).init({"context/kernel": np.zeros(2)}, 2)
