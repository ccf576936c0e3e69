"""Model interpolation: common and own models as in FedAvg and alone, and the share against a loop and by hand."""

from typing import Any

import jax
import numpy as np
import pytest

from tests.support.by_hand.softmax import START, chances, matrix_of, params_of, rows_at, slope
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.local import local
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.model_interpolation import first_adequate, fold_of, model_interpolation
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Message, Model, Params, Progress, Scores, Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import one_site
from wardround.models.linear import linear
from wardround.models.logistic import logistic

Numbers = np.ndarray[Any, Any]
SEED, RATE, EPOCHS, SIZE = 11, 0.3, 2, 10
PLAIN = identity()


OWN_RATE, FOLDS, GRID = 0.2, 3, (1.0, 0.0, 0.25, 0.5, 0.75)
ROUNDS = [(1, np.arange(7)), (2, np.array([0, 1, 4, 5]))]
"""Site 2 is empty, site 4 has one row, site 3 one class only."""


def trained(
    algorithm: Algorithm, federation: Federation, start: Params, rounds: Any = ROUNDS
) -> tuple[Progress, Scores]:
    with Simulation(federation, seed=SEED, transform=PLAIN, device_count=1) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, start), rounds)
        return progress, engine.predict(algorithm, progress, "test")


def interpolated(model: Model, grid: tuple[float, ...] = GRID, batch_size: int = SIZE) -> Algorithm:
    return model_interpolation(
        model,
        weighted_mean(),
        grid=grid,
        folds=FOLDS,
        own_learning_rate=OWN_RATE,
        learning_rate=RATE,
        local_epochs=EPOCHS,
        batch_size=batch_size,
        momentum=0.5,
    )


@pytest.fixture(scope="module")
def after(ragged: Federation, model: Model) -> tuple[Progress, Scores]:
    return trained(interpolated(model), ragged, params_of(START))


@pytest.fixture(scope="module")
def plain(ragged: Federation, model: Model) -> tuple[Progress, Scores]:
    settings: dict[str, Any] = {"local_epochs": EPOCHS, "batch_size": SIZE, "momentum": 0.5}
    return trained(fed_avg(model, weighted_mean(), learning_rate=RATE, **settings), ragged, params_of(START))


@pytest.fixture(scope="module")
def alone(ragged: Federation, model: Model) -> tuple[Progress, Scores]:
    settings: dict[str, Any] = {"local_epochs": EPOCHS, "batch_size": SIZE, "momentum": 0.5}
    return trained(local(model, learning_rate=OWN_RATE, **settings), ragged, params_of(START))


Trained = tuple[Progress, Scores]


def test_the_two_models_are_those_of_fed_avg_and_of_training_alone(
    after: Trained, plain: Trained, alone: Trained
) -> None:
    np.testing.assert_allclose(matrix_of(after[0].server), matrix_of(plain[0].server), atol=1e-6)
    np.testing.assert_allclose(matrix_of(after[0].clients["own"]), matrix_of(alone[0].clients), atol=1e-6)


def folds_by_hand(x: Numbers, folds: int = FOLDS) -> Numbers:
    """Sum over features of hash(bits + place * golden ratio), hashed again: in Python's whole numbers, modulo 2^32."""

    def scattered(number: int) -> int:
        number = ((number ^ (number >> 16)) * 0x85EBCA6B) % 2**32
        number = ((number ^ (number >> 13)) * 0xC2B2AE35) % 2**32
        return number ^ (number >> 16)

    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).tolist()
    sums = [sum(scattered((b + j * 0x9E3779B9) % 2**32) for j, b in enumerate(row)) % 2**32 for row in bits]
    return np.array([scattered(total) % folds for total in sums], int)


def own_by_hand(federation: Federation, site: int, left_out: int, size: int, rounds: Any) -> Numbers:
    """A site's own model that never sees one fold: the batches of everybody, without the rows of that fold."""
    x, y = rows_at(federation, site)
    fold = folds_by_hand(x[:, :-1])
    w = START
    for number, cohort in rounds:
        velocity = np.zeros_like(w)
        if site not in cohort:
            continue
        for order in visiting_order(SEED, number, np.array([site]), np.array([len(y)]), EPOCHS):
            for begin in range(0, len(y), size):
                batch = [row for row in order[begin : begin + size] if fold[row] != left_out]
                velocity = 0.5 * velocity + (slope(w, x[batch], y[batch]) if batch else 0)
                w = w - OWN_RATE * velocity
    return w


def test_shares_and_predictions_equal_a_loop(after: Trained, ragged: Federation) -> None:
    progress, scores = after
    common = matrix_of(jax.device_get(progress.server)).astype(np.float64)
    without = matrix_of(jax.device_get(progress.clients["without"]))
    own = matrix_of(jax.device_get(progress.clients["own"])).astype(np.float64)
    found = []
    for site in range(7):
        (x, y), (held_out, _) = rows_at(ragged, site), rows_at(ragged, site, "test")
        models = np.stack([own_by_hand(ragged, site, fold, SIZE, ROUNDS) for fold in range(FOLDS)])
        np.testing.assert_allclose(without[site], models, atol=3e-6)
        fold, losses = folds_by_hand(x[:, :-1]), dict.fromkeys(sorted(GRID), 0.0)
        for row in range(len(y)):
            mine, theirs = (chances(w, x[row : row + 1])[0, y[row]] for w in (models[fold[row]], common))
            for share in losses:
                losses[share] -= np.log(share * mine + (1 - share) * theirs)
        share = min(losses, key=lambda share: losses[share])
        found.append(share)
        wanted = share * chances(own[site], held_out) + (1 - share) * chances(common, held_out)
        np.testing.assert_allclose(scores.predicted[scores.first[site] : scores.first[site + 1]], wanted, atol=3e-6)
    assert found[2] == 0  # nothing to choose by: the common model
    assert len(set(found)) >= 3  # else the choice is hardly tested


@pytest.mark.slow
def test_all_rows_at_once_is_the_mean_over_the_rows_left(make_federation: Any, model: Model) -> None:
    """150 rows are three chunks, each of which loses another number of rows."""
    federation = make_federation([150, 20])
    rounds = [(1, np.arange(2)), (2, np.arange(2))]
    progress, _ = trained(interpolated(model, batch_size=0), federation, params_of(START), rounds)
    without = matrix_of(jax.device_get(progress.clients["without"]))
    for site in range(2):
        for fold in range(FOLDS):
            np.testing.assert_allclose(without[site, fold], own_by_hand(federation, site, fold, 150, rounds), atol=3e-6)


def test_shares_of_nothing_and_one_are_the_common_model_and_training_alone(
    after: Trained, plain: Trained, alone: Trained, ragged: Federation, model: Model
) -> None:
    """The grid plays no part in training, so that one training serves both."""
    for share, wanted in ((0.0, plain), (1.0, alone)):
        with Simulation(ragged, seed=SEED, transform=PLAIN, device_count=1) as engine:
            scores = engine.predict(interpolated(model, (share,)), after[0], "test")
        np.testing.assert_allclose(scores.predicted, wanted[1].predicted, atol=1e-6)


def share_of(algorithm: Algorithm, common: Params, own: Params, x: Numbers, y: Numbers) -> float:
    assert algorithm.personal is not None
    kept = {"own": own, "without": {name: np.stack([value] * 4) for name, value in own.items()}}
    shard = one_site(x, y, np.arange(len(y))[None])
    fitted = algorithm.personal.fit(Message({"params": common}), kept, shard, jax.random.key(0))
    predicted = np.asarray(algorithm.predict(fitted, x))
    plainly = [np.asarray(algorithm.predict(params, x)) for params in (own, common)]
    share = float(fitted["share"])
    np.testing.assert_allclose(predicted, share * plainly[0] + (1 - share) * plainly[1], atol=1e-6)
    return share


def test_the_share_of_a_regression_by_hand() -> None:
    """The common model says 0, the own one 1, the patients 0.3 and, half of them, 0.5: a share of 0.4 is nearest."""
    x = np.random.default_rng(0).normal(0, 1, (100, 2)).astype(np.float32)
    y = np.where(np.arange(100) % 2, 0.3, 0.5).astype(np.float32)
    common, own = (
        {"dense_0/kernel": np.zeros((2, 1), np.float32), "dense_0/bias": np.full(1, b, np.float32)} for b in (0, 1)
    )
    algorithm = model_interpolation(linear(Task((2,))), weighted_mean())
    assert share_of(algorithm, common, own, x, y) == pytest.approx(0.4)


def test_caution_leans_towards_the_common_model_by_hand() -> None:
    """As above: a share s is worse than 0.4 by (s - 0.4)(s - 0.2) at y = 0.3 and by (s - 0.4)(s - 0.6) at y = 0.5.

    The mean is (s - 0.4)^2 and the standard error 0.2 |s - 0.4| / sqrt(99), so that c errors allow for
    |s - 0.4| <= 0.0201 c: 0.3 from c = 4.975 on, 0.2 from 9.95, 0 from 19.9.
    """
    x = np.random.default_rng(0).normal(0, 1, (100, 2)).astype(np.float32)
    y = np.where(np.arange(100) % 2, 0.3, 0.5).astype(np.float32)
    common, own = (
        {"dense_0/kernel": np.zeros((2, 1), np.float32), "dense_0/bias": np.full(1, b, np.float32)} for b in (0, 1)
    )
    for caution, wanted in ((4.9, 0.4), (5.05, 0.3), (9.9, 0.3), (10.05, 0.2), (20.5, 0.0)):
        algorithm = model_interpolation(linear(Task((2,))), weighted_mean(), caution=caution)
        assert share_of(algorithm, common, own, x, y) == pytest.approx(wanted)


def test_the_first_that_serves_by_hand() -> None:
    """Losses of three rows with three shares; means 0.6, 0.5, 0.49, against the first -0.1 and -0.11.

    The first is worse than the best by (0.2, 0.09, 0.04): mean 0.11, standard error
    sqrt((0.09^2 + 0.02^2 + 0.07^2) / (3 * 2)) = 0.04726, so 2.33 errors. The second by (0.03, 0, 0): mean 0.01, its
    error sqrt((0.02^2 + 0.01^2 + 0.01^2) / (3 * 2)) = 0.01, so one error.
    """
    losses = np.array([[0.70, 0.53, 0.50], [0.59, 0.50, 0.50], [0.51, 0.47, 0.47]])
    apart = (losses - losses[:, :1]).astype(np.float32)
    found = {c: int(first_adequate(apart.sum(axis=0), apart.T @ apart, 3, c)) for c in (0, 0.98, 1.02, 2.3)}
    assert found == {0: 2, 0.98: 2, 1.02: 1, 2.3: 1}
    assert int(first_adequate(apart.sum(axis=0), apart.T @ apart, 3, 2.4)) == 0
    # No rows, nothing to choose by; and a single row has no error: the best.
    assert int(first_adequate(np.zeros(3), np.zeros((3, 3)), 0, 1.0)) == 0
    one = apart[:1]
    assert int(first_adequate(one[0], one.T @ one, 1, 1.0)) == 2


def test_the_share_of_a_classification_by_hand() -> None:
    """Chances of "no": common 0.5, own 0.9; of 100 patients 70 are: 0.9 s + 0.5 (1 - s) = 0.7 at s = 0.5."""
    x = np.random.default_rng(0).normal(0, 1, (100, 2)).astype(np.float32)
    y = (np.arange(100) >= 70).astype(np.int32)
    biases = ([0, 0], [np.log(9), 0])
    common, own = (
        {"dense_0/kernel": np.zeros((2, 2), np.float32), "dense_0/bias": np.array(b, np.float32)} for b in biases
    )
    algorithm = model_interpolation(logistic(Task((2,), ("no", "yes"))), weighted_mean())
    assert share_of(algorithm, common, own, x, y) == pytest.approx(0.5)


def test_folds_are_even_and_go_by_what_stands_in_a_row() -> None:
    """4000 rows in 4 folds: 1000 each, with a standard deviation of sqrt(4000 * 3/16) = 27."""
    x = np.random.default_rng(0).normal(0, 1, (4000, 3)).astype(np.float32)
    fold = np.asarray(fold_of(x, 4))
    assert np.abs(np.bincount(fold, minlength=4) - 1000).max() < 5 * 27
    assert np.array_equal(np.asarray(fold_of(x[::-1], 4)), fold[::-1])
    # Few values, as in a table of yes and no: all 1024 rows differ, and so do their folds; columns are not alike.
    yes_no = np.array([[(row >> bit) & 1 for bit in range(10)] for row in range(1024)])
    for table in (yes_no.astype(np.float32), yes_no.astype(np.int32)):
        sizes = np.bincount(np.asarray(fold_of(table, 4)), minlength=4)
        assert np.abs(sizes - 256).max() < 5 * np.sqrt(1024 * 3 / 16)


def drawn(seed: int, apart: float) -> Federation:
    """Eight sites of 60 rows; the truths of odd and even ones differ by twice `apart`."""
    generator = np.random.default_rng(seed)
    middle, step = generator.normal(0, 1, (2, 5))
    step *= apart / np.linalg.norm(step)

    def rows(count: int, truth: Numbers) -> tuple[Numbers, Numbers]:
        x = generator.normal(0, 1, (count, 5))
        return x, generator.random(count) < 1 / (1 + np.exp(-x @ truth))

    truths = [middle + (step if site % 2 else -step) for site in range(8)]
    parts = [(f"site-{i}", [rows(60, w), rows(1, w), rows(300, w)]) for i, w in enumerate(truths)]
    return assemble(parts, Task((5,), ("no", "yes")))


@pytest.mark.slow
def test_is_within_a_point_of_the_better_of_common_and_alone() -> None:
    """The mean accuracy over four drawn federations, once where sites are alike and once where they are of two kinds.

    In a single federation the share can be chosen badly enough to cost a little more than a point.
    """
    network = logistic(Task((5,), ("no", "yes")))
    algorithms = {
        "common": fed_avg(network, weighted_mean()),
        "alone": local(network),
        "mixed": model_interpolation(network, weighted_mean()),
    }
    start, rounds = network.init(jax.random.key(0)), [(number, np.arange(8)) for number in range(1, 61)]
    for apart, better, worse in ((0.0, "common", "alone"), (1.5, "alone", "common")):
        federations = [drawn(seed, apart) for seed in range(1, 5)]
        right = {}
        for name, algorithm in algorithms.items():
            scores = [trained(algorithm, federation, start, rounds)[1] for federation in federations]
            right[name] = np.mean([np.mean(one.predicted.argmax(axis=1) == one.actual) for one in scores])
        assert right[better] > right[worse] + 0.01
        assert right["mixed"] > right[better] - 0.01
        assert right["mixed"] > right[worse]


def test_a_grid_without_shares_is_refused(model: Model) -> None:
    with pytest.raises(Refusal, match="list of shares is empty"):
        model_interpolation(model, weighted_mean(), grid=())
