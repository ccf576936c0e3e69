"""Every held-out row is predicted once, by the model its site would use, whatever it is batched with."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.local import local
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.fine_tune import fine_tune
from wardround.core.contracts import Algorithm, Model, Progress, Task
from wardround.core.federation import Federation
from wardround.engine import predictions
from wardround.engine.predictions import SiteModels, predict_pieces, predict_rows, row_numbers, scores
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic

EVERYONE = np.arange(7)


def started(algorithm: Algorithm, federation: Federation, model: Model, rounds: int = 2) -> Progress:
    with Simulation(federation, seed=3, device_count=1) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        return engine.train(algorithm, progress, [(n, EVERYONE) for n in range(1, rounds + 1)])[0]


@pytest.fixture(scope="module")
def common(model: Model) -> Algorithm:
    return fed_avg(model, weighted_mean(), batch_size=16)


@pytest.fixture(scope="module")
def personal(model: Model) -> Algorithm:
    return fine_tune(model, weighted_mean(), batch_size=16)


def test_spans_of_ragged_pieces() -> None:
    assert row_numbers(np.array([10, 3, 7]), np.array([2, 0, 3])).tolist() == [10, 11, 7, 8, 9]
    assert row_numbers(np.zeros(0, int), np.zeros(0, int)).tolist() == []


def test_every_piece_is_predicted_by_its_own_model() -> None:
    x = np.arange(1024 * 2, dtype=np.float32).reshape(1024, 2)
    models = SiteModels({"factor": jnp.array([2.0, -1.0])}, np.array([1, 0, 0]))
    first, count = np.array([5, 900, 0]), np.array([300, 0, 7])
    found = predict_pieces(lambda own, rows: jnp.sum(rows, axis=1) * own["factor"], models, x, first, count)
    assert np.array_equal(found, np.concatenate([-x[5:305].sum(axis=1), 2 * x[:7].sum(axis=1)]))


def test_bytes_are_intensities_and_neighbours_change_no_bit(model: Model, common: Algorithm) -> None:
    bytes_ = np.full((4, 2), 255, np.uint8)
    plain = common._replace(predict=lambda factor, rows: rows * factor["by"])
    assert predict_rows(plain, {"by": np.float32(1)}, bytes_).tolist() == [[1.0, 1.0]] * 4
    x = np.random.default_rng(3).normal(size=(1500, 3)).astype(np.float32)
    params = {"dense_0/kernel": x[:3, :2] * 3, "dense_0/bias": x[4, :2]}
    together = predict_rows(common, params, x)
    alone = np.concatenate([predict_rows(common, params, x[at : at + 1]) for at in (0, 7, 255, 256, 1499)])
    assert np.array_equal(together[[0, 7, 255, 256, 1499]], alone)


def test_common_predictions_are_the_softmax_of_the_models_own_numbers(
    ragged: Federation, model: Model, common: Algorithm
) -> None:
    progress = started(common, ragged, model)
    params = jax.device_get(common.params(progress.server))
    weights, bias = params["dense_0/kernel"].astype(np.float64), params["dense_0/bias"].astype(np.float64)
    for part in ("train", "validation", "test"):
        told = scores(common, progress, ragged, part, EVERYONE, seed=3)
        rows = ragged.rows_of(part)
        odds = np.exp(ragged.x[rows].astype(np.float64) @ weights + bias)
        np.testing.assert_allclose(told.predicted, odds / odds.sum(axis=1, keepdims=True), atol=1e-6)
        assert np.array_equal(told.actual, ragged.y[rows])
        assert np.diff(told.first).tolist() == ragged.part(part)[1].tolist()


def test_only_the_sites_asked_for(ragged: Federation, model: Model, common: Algorithm, personal: Algorithm) -> None:
    for algorithm in (common, personal):
        progress = started(algorithm, ragged, model)
        every = scores(algorithm, progress, ragged, "test", EVERYONE, seed=3)
        some = scores(algorithm, progress, ragged, "test", np.array([1, 5]), seed=3)
        wanted = np.concatenate([np.arange(every.first[i], every.first[i + 1]) for i in (1, 5)])
        np.testing.assert_allclose(some.predicted, every.predicted[wanted], atol=1e-6)
        assert np.array_equal(some.actual, every.actual[wanted])
        assert some.first.tolist() == [0, *np.cumsum(np.diff(every.first)[[1, 5]])]


def test_a_personal_model_does_not_depend_on_its_neighbours(
    ragged: Federation, model: Model, personal: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = started(personal, ragged, model)
    at_once = scores(personal, progress, ragged, "test", EVERYONE, seed=3)
    monkeypatch.setattr(predictions, "SITES_AT_ONCE", 3)
    monkeypatch.setattr(predictions, "LANES", 2)
    in_pieces = scores(personal, progress, ragged, "test", EVERYONE, seed=3)
    np.testing.assert_allclose(in_pieces.predicted, at_once.predicted, atol=1e-6)
    assert np.array_equal(in_pieces.actual, at_once.actual)


def test_a_site_without_training_rows_uses_the_common_model(
    ragged: Federation, model: Model, common: Algorithm, personal: Algorithm
) -> None:
    """Site 2 is empty but for a held-out row; fine-tuning on nothing leaves the common model as it is."""
    told = scores(personal, started(personal, ragged, model), ragged, "test", np.array([2, 5]), seed=3)
    plain = scores(common, started(common, ragged, model), ragged, "test", np.array([2, 5]), seed=3)
    np.testing.assert_allclose(told.predicted[0], plain.predicted[0], atol=1e-6)
    assert np.abs(told.predicted[1:] - plain.predicted[1:]).max() > 1e-3, "site 5 has rows and moves away"


def test_each_site_predicts_with_what_it_kept(even: Federation, model: Model) -> None:
    """Learning alone: where two sites swap what they kept, their predictions change, and nobody else's."""
    algorithm = local(model, batch_size=16)
    progress = started(algorithm, even, model)
    told = scores(algorithm, progress, even, "test", EVERYONE, seed=3)
    swapped = jax.tree.map(lambda table: table[jnp.array([1, 0, 2, 3, 4, 5, 6])], progress.clients)
    other = scores(algorithm, replace(progress, clients=swapped), even, "test", EVERYONE, seed=3)
    edges = told.first
    assert np.abs(told.predicted[: edges[2]] - other.predicted[: edges[2]]).max() > 1e-3
    np.testing.assert_allclose(told.predicted[edges[2] :], other.predicted[edges[2] :], atol=1e-6)


def test_a_part_without_rows_gives_empty_predictions(ragged: Federation, model: Model, common: Algorithm) -> None:
    counts = ragged.counts.copy()
    counts[:, 1] = 0
    none = replace(ragged, counts=counts)
    progress = started(common, ragged, model)
    told = scores(common, progress, none, "validation", EVERYONE, seed=3)
    assert told.predicted.shape == (0, 2)
    assert told.first.tolist() == [0] * 8


def test_more_rows_than_a_chunk(common: Algorithm, model: Model) -> None:
    """700 held-out rows at one site are three chunks of 256, the last one padded."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(710, 3)).astype(np.float32)
    big = Federation(
        sites=("a",),
        x=x,
        y=(x[:, 0] > 0).astype(np.int32),
        first=np.zeros(1, int),
        counts=np.array([[10, 0, 700]]),
        task=Task((3,), ("no", "yes")),
    )
    algorithm: Any = fed_avg(logistic(big.task), weighted_mean())
    with Simulation(big, seed=3, device_count=1) as engine:
        progress = engine.begin(algorithm, logistic(big.task).init(jax.random.key(0)))
        progress = engine.train(algorithm, progress, [(1, np.zeros(1, int))])[0]
        told = engine.predict(algorithm, progress, "test")
    expected = algorithm.predict(algorithm.params(progress.server), jnp.asarray(x[10:]))
    np.testing.assert_allclose(told.predicted, expected, atol=1e-6)
