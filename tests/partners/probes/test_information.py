"""Score and information against closed forms, one patient after the other."""

import jax
import numpy as np
import pytest

from tests.support.answers import numbers_told
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.components.terms import Extent, terms_of
from wardround.core.contracts import Model, Params, Task
from wardround.core.federation import Federation, assemble
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.models.logistic import logistic
from wardround.partners.choice import Question
from wardround.partners.probes.information import information, moved, sketch


def bare_question(federation: Federation, model: Model, user: int = 0) -> Question:
    others = tuple(i for i in range(len(federation.sites)) if i != user)
    algorithm = fed_avg(model, weighted_mean())
    return Question(Simulation(federation), model, algorithm, model.init(jax.random.key(0)), 20, user, others)


def test_score_and_information_are_those_of_the_textbook(ragged: Federation, model: Model) -> None:
    """Softmax regression: the gradient is x (p - y), the information x x' (diag p - p p'), a pair of classes."""
    start = model.init(jax.random.key(0))
    params: Params = {
        name: np.asarray(np.random.default_rng(1).normal(size=array.shape), np.float32) for name, array in start.items()
    }
    state = bare_question(ragged, model).probe(information(model), params)
    first, count = ragged.part("train")
    for site in (0, 1, 3, 4, 5):
        rows = slice(int(first[site]), int(first[site] + count[site]))
        risk = np.asarray(model.predict(params, ragged.x[rows]), np.float64)
        # Parameters in the order of the leaves: the bias of both classes, then the weights, feature after feature.
        full = np.concatenate([np.ones((len(risk), 1)), ragged.x[rows]], axis=1)
        slope = np.einsum("ni,nc->ic", full, risk - np.eye(2)[ragged.y[rows]]) / len(risk)
        inner = risk[:, :, None] * np.eye(2) - risk[:, :, None] * risk[:, None, :]
        bend = np.einsum("ni,ncd,nj->icjd", full, inner, full).reshape(8, 8) / len(risk)
        np.testing.assert_allclose(state["slope"][site], slope.ravel(), atol=2e-6)
        np.testing.assert_allclose(state["bend"][site], bend, atol=2e-6)
    assert np.asarray(state["rows"]).tolist() == count.tolist()
    assert np.asarray(state["spread"])[[0, 1, 3]].tolist() == [1, 1, 1]


def test_a_penalty_is_no_evidence(ragged: Federation, model: Model) -> None:
    params: Params = jax.tree.map(lambda a: a + 0.3, model.init(jax.random.key(0)))
    plain, pulled = (
        bare_question(ragged, one).probe(information(one), params) for one in (model, logistic(ragged.task, l2=0.5))
    )
    for name in ("slope", "bend"):
        np.testing.assert_allclose(plain[name], pulled[name], atol=1e-6)


def test_a_regression_is_told_in_units_of_its_residual() -> None:
    """Least squares: the gradient of half the squared error is x (prediction - y), the information x x'."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(40, 2)).astype(np.float32)
    y = (x @ [2.0, -1.0] + generator.normal(size=40)).astype(np.float32)
    task = Task((2,))
    federation = assemble([("a", [(x, y), (x[:0], y[:0]), (x[:0], y[:0])])] * 2, task)
    model = linear(task)
    state = bare_question(federation, model).probe(information(model), model.init(jax.random.key(0)))
    full = np.concatenate([np.ones((40, 1)), x], axis=1)
    predicted = np.asarray(model.predict(model.init(jax.random.key(0)), x))
    np.testing.assert_allclose(state["slope"][0], full.T @ (predicted - y) / 40, atol=1e-5)
    np.testing.assert_allclose(state["bend"][0], full.T @ full / 40, atol=1e-5)
    np.testing.assert_allclose(state["spread"][0], np.mean((predicted - y) ** 2), rtol=1e-5)


def test_a_model_is_moved_along_what_is_told_of_it(model: Model) -> None:
    params = model.init(jax.random.key(0))
    after = moved(params, np.arange(8.0))
    assert after is not None
    np.testing.assert_allclose(sketch(after, 256) - sketch(params, 256), np.arange(8.0))
    assert moved(params, np.arange(5.0)) is None


def test_a_large_model_is_told_in_signed_sums() -> None:
    generator = np.random.default_rng(2)
    long = {"w": generator.normal(size=4000).astype(np.float32)}
    short = np.asarray(sketch(long, 256))
    assert short.shape == (256,)
    # E|sketch|² = |g|², with relative standard deviation sqrt(2 / 256) = 0.09.
    assert np.sum(short**2) == pytest.approx(np.sum(long["w"] ** 2), rel=0.36)
    assert np.asarray(sketch({"w": np.arange(5.0)}, 256)).tolist() == [0, 1, 2, 3, 4]


def test_an_answer_is_as_large_as_its_terms_say(model):
    """A logistic model of 3 inputs and 2 classes has 3 * 2 + 2 = 8 parameters."""
    told = numbers_told(information(model), model.init(jax.random.key(0)))
    assert told == terms_of(information).numbers(Extent(parameters=8))
