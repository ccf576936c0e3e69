"""Gradients and their scatter against one patient after the other."""

import jax
import numpy as np
import pytest

from tests.support.answers import numbers_told
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.components.terms import Extent, terms_of
from wardround.core.contracts import Batch, Model, Params
from wardround.core.federation import Federation
from wardround.engine.simulate import Simulation
from wardround.partners.choice import Question
from wardround.partners.probes.scatter import scatter, sketch


def bare_question(federation: Federation, model: Model, user: int = 0) -> Question:
    others = tuple(i for i in range(len(federation.sites)) if i != user)
    algorithm = fed_avg(model, weighted_mean())
    return Question(Simulation(federation), model, algorithm, model.init(jax.random.key(0)), 20, user, others)


def test_scatter_is_each_patients_gradient(ragged: Federation, model: Model) -> None:
    params: Params = jax.tree.map(lambda a: a + 0.3, model.init(jax.random.key(0)))
    question = bare_question(ragged, model)
    state = question.probe(scatter(model), params)
    first, count = ragged.part("train")

    @jax.jit
    def of_one(x: jax.Array, y: jax.Array) -> jax.Array:
        gradient = model.gradient(params, Batch(x[None], y[None], np.ones(1, np.float32)), jax.random.key(0))
        return jax.numpy.concatenate([jax.numpy.ravel(leaf) for leaf in jax.tree.leaves(gradient)])

    for site in (0, 1, 3, 4, 5):
        rows = range(int(first[site]), int(first[site] + count[site]))
        every = np.array([of_one(ragged.x[row], ragged.y[row]) for row in rows], np.float64)
        np.testing.assert_allclose(state["slope"][site], every.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(state["square"][site], every.T @ every / len(every), atol=1e-5)
    assert np.asarray(state["rows"]).tolist() == count.tolist()


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
    told = numbers_told(scatter(model), model.init(jax.random.key(0)))
    assert told == terms_of(scatter).numbers(Extent(parameters=8))
