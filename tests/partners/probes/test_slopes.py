"""Every site's gradient at one model, against the formula."""

import jax
import numpy as np
import pytest

from tests.support.answers import numbers_told
from wardround.core.components.terms import Extent, terms_of
from wardround.engine.simulate import Simulation
from wardround.partners.probes.slopes import slopes


def asked(engine, algorithm, params, cohort):
    progress = engine.begin(algorithm, params)
    progress, _ = engine.train(algorithm, progress, [(1, np.asarray(cohort))])
    return jax.device_get(progress.server)


@pytest.fixture(scope="module")
def params():
    generator = np.random.default_rng(0)
    return {
        "dense_0/kernel": generator.normal(0, 1, (3, 2)).astype(np.float32),
        "dense_0/bias": generator.normal(0, 1, 2).astype(np.float32),
    }


def by_hand(federation, site, params, part):
    """The cross entropy's gradient: X' (p - y) / n for the weights, the mean of p - y for the bias."""
    first, count = federation.part(part)
    rows = slice(first[site], first[site] + count[site])
    x, y = federation.x[rows].astype(np.float64), np.eye(2)[federation.y[rows]]
    e = np.exp(x @ params["dense_0/kernel"] + params["dense_0/bias"])
    wrong = e / e.sum(axis=1, keepdims=True) - y
    return x.T @ wrong / len(x), wrong.mean(axis=0)


def test_gradients_by_the_formula(ragged, model, params):
    """On the rows held out for validation, so that it shows whose rows were looked at."""
    part = "validation"
    probe, engine = slopes(model, part=part), Simulation(ragged, seed=2, device_count=1)
    state = asked(engine, probe, params, np.arange(7))
    counts = ragged.part(part)[1]
    np.testing.assert_array_equal(state["rows"], counts)
    for site in np.flatnonzero(counts):
        kernel, bias = by_hand(ragged, site, params, part)
        np.testing.assert_allclose(state["slopes"]["dense_0/kernel"][site], kernel, atol=1e-5)
        np.testing.assert_allclose(state["slopes"]["dense_0/bias"][site], bias, atol=1e-5)

    for name, value in params.items():  # the model that was sent is not trained
        np.testing.assert_array_equal(state["params"][name], value)
    some = asked(engine, probe, params, [0, 6])
    np.testing.assert_array_equal(np.flatnonzero(some["rows"]), [0, 6])
    for name, rows in state["slopes"].items():
        np.testing.assert_allclose(some["slopes"][name][[0, 6]], rows[[0, 6]], atol=1e-6)
        assert not some["slopes"][name][1:6].any()


def test_an_answer_is_as_large_as_its_terms_say(model):
    """A logistic model of 3 inputs and 2 classes has 3 * 2 + 2 = 8 parameters."""
    told = numbers_told(slopes(model), model.init(jax.random.key(0)))
    assert told == terms_of(slopes).numbers(Extent(parameters=8))
