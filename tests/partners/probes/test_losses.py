"""Losses of several models at every site against NumPy, and what pairs of models differ by on the same rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.answers import numbers_told
from wardround.core.components.terms import Extent, terms_of
from wardround.core.quality import row_losses
from wardround.engine.simulate import Simulation
from wardround.partners.probes.losses import difference_errors, losses

SIZES = np.array([40, 7, 0, 23, 1, 64, 30])


def asked(engine, algorithm, stack, cohort=None):
    cohort = np.arange(len(engine.sites)) if cohort is None else np.asarray(cohort)
    progress = engine.begin(algorithm, stack)
    progress, _ = engine.train(algorithm, progress, [(1, cohort)])
    return jax.device_get(progress.server)


@pytest.fixture(scope="module")
def engine(ragged):
    return Simulation(ragged, seed=2, device_count=1)


@pytest.fixture(scope="module")
def stack():
    """Four logistic models: nothing learned, two alike, and one that is wrong and sure of it."""
    generator = np.random.default_rng(0)
    kernel = generator.normal(0, 1, (4, 3, 2)).astype(np.float32)
    bias = generator.normal(0, 1, (4, 2)).astype(np.float32)
    kernel[0], bias[0] = 0, 0
    kernel[2], bias[2] = kernel[1] + 1e-3, bias[1] + np.array([1e-3, 0])
    kernel[3], bias[3] = 0, np.array([500, -500])
    return {"dense_0/kernel": kernel, "dense_0/bias": bias}


@pytest.fixture(scope="module")
def probe(model):
    return losses(model)


@pytest.fixture(scope="module")
def state(engine, probe, stack):
    return asked(engine, probe, stack)


def by_hand(federation, site, stack):
    """(models, rows): the loss of every row."""
    first, _ = federation.part("train")
    rows = slice(first[site], first[site] + SIZES[site])
    x, y = federation.x[rows].astype(np.float64), federation.y[rows]
    logits = np.einsum("rf,kfc->krc", x, stack["dense_0/kernel"]) + stack["dense_0/bias"][:, None]
    logits = logits.astype(np.float64)
    top = logits.max(axis=2, keepdims=True)
    probability = np.exp(logits - top) / np.exp(logits - top).sum(axis=2, keepdims=True)
    return -np.log(np.maximum(probability[:, np.arange(len(y)), y], 1e-7))


def test_means_errors_and_products_by_hand(state, ragged, stack):
    np.testing.assert_array_equal(state["rows"], SIZES)
    for site in np.flatnonzero(SIZES):
        each = by_hand(ragged, site, stack)
        np.testing.assert_allclose(state["loss"][site], each.mean(axis=1), rtol=1e-4)
        np.testing.assert_allclose(state["products"][site], each @ each.T / SIZES[site], rtol=1e-3, atol=1e-4)
        apart = np.square(each[:, None] - each[None]).mean(axis=2)
        np.testing.assert_allclose(state["apart"][site], apart, rtol=1e-3, atol=1e-6)
        if SIZES[site] > 1:
            expected = each.std(axis=1, ddof=1) / np.sqrt(SIZES[site])
            np.testing.assert_allclose(state["error"][site], expected, rtol=1e-3, atol=2e-3)
    # Nothing learned is a coin's toss; wrong and sure of it costs -log(1e-7), not infinity.
    np.testing.assert_allclose(state["loss"][SIZES > 0, 0], np.log(2), rtol=1e-6)
    only_yes = state["loss"][3, 3]  # site 3 has nobody but class 1, and the last model always says class 0
    assert only_yes == pytest.approx(-np.log(1e-7), rel=1e-4)


def test_looks_at_the_part_it_is_told_to(model):
    assert losses(model).part == "train"
    assert losses(model, part="test").part == "test"


def test_differences_are_paired_over_rows(state, ragged, stack):
    """Also for models that differ by a thousandth, whose losses are hundreds of times their difference."""
    found = difference_errors(state)
    for site in (0, 1, 3, 5, 6):
        each = by_hand(ragged, site, stack)
        differences = each[:, None] - each[None]
        expected = differences.std(axis=2, ddof=1) / np.sqrt(SIZES[site])
        np.testing.assert_allclose(found[site], expected, rtol=2e-2, atol=2e-6)
        assert found[site, 1, 2] < state["error"][site, 1] / 50
    assert np.isnan(found[[2, 4]]).all()


def test_empty_and_single_rows(state):
    assert not any(state[name][2].any() for name in ("loss", "error", "products", "apart"))
    assert not state["error"][4].any()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))


def test_a_site_does_not_depend_on_who_else_is_there(state, engine, probe, stack):
    some = asked(engine, probe, stack, [1, 6])
    for name in ("loss", "error", "products", "apart", "rows"):
        np.testing.assert_allclose(some[name][[1, 6]], state[name][[1, 6]], rtol=1e-4, atol=1e-4)
        assert not some[name][[0, 2, 3, 4, 5]].any()


def test_row_losses_by_hand():
    probability = np.array([[0.25, 0.75], [1.0, 0.0]], np.float32)
    found = row_losses(probability, np.array([1, 1]))
    np.testing.assert_allclose(found, [-np.log(0.75), -np.log(1e-7)], rtol=1e-6)
    np.testing.assert_allclose(row_losses(np.array([1.0, 2.0]), np.array([3.0, 2.0])), [4, 0])


def test_differences_by_hand():
    """Two rows with losses 9 and 9 under one model, 4 and 1 under the other.

    They differ by 5 and 8: mean square (25 + 64) / 2 = 89/2, mean 13/2, sample variance 9/2, standard error 3/2.
    """
    apart = np.array([[[0, 44.5], [44.5, 0]]])
    state = {"loss": np.array([[9.0, 2.5]]), "apart": apart, "rows": np.array([2.0])}
    np.testing.assert_allclose(difference_errors(state), [[[0, 1.5], [1.5, 0]]])


def test_an_answer_is_as_large_as_its_terms_say(model):
    """Of 5 models: 5 losses, 5 squares, 25 differences and the number of rows."""
    stack = jax.tree.map(lambda a: jnp.stack([a] * 5), model.init(jax.random.key(0)))
    assert numbers_told(losses(model), stack) == terms_of(losses).numbers(Extent(models=5)) == 36
