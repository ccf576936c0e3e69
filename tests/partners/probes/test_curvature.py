import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.answers import numbers_told
from wardround.core.components.terms import Extent, terms_of
from wardround.core.contracts import Model, Task
from wardround.core.federation import assemble
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.models.logistic import logistic
from wardround.partners.probes.curvature import NOBODY, curvature

NUMBER, YES_OR_NO = Task((3,), (), "days"), Task((3,), ("no", "yes"), "ill")
SIZES = (30, 100, 0, 7)
"""One site longer than a chunk of rows, one empty."""


def sites_of(task):
    generator = np.random.default_rng(3)
    empty = (np.zeros((0, 3), np.float32), np.zeros(0, np.float32))
    rows = []
    for size in SIZES:
        x = generator.normal(0, 1, (size, 3)).astype(np.float32)
        y = generator.normal(0, 1, size) if task.regression else generator.integers(0, 2, size)
        rows.append((x, y.astype(np.float32 if task.regression else np.int32)))
    return rows, assemble([(f"site-{i}", (one, empty, empty)) for i, one in enumerate(rows)], task)


def solve(federation, model, params, right, without, rounds, **settings):
    probe = curvature(model, **settings)
    with Simulation(federation) as engine:
        progress = engine.begin(probe, {"model": params, "right": right, "without": np.array(without)})
        everyone = np.arange(len(federation.sites))
        progress, _ = engine.train(probe, progress, [(number + 1, everyone) for number in range(rounds)])
    return progress.server


def with_intercept(x):
    return np.hstack([x, np.ones((len(x), 1))]).astype(np.float64)


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_least_squares_systems_are_solved_as_by_dense_linear_algebra(weights):
    # The loss is the mean of (x w - y)^2, its Hessian 2 X'X / n; l2 adds itself for the weights, not the intercept.
    rows, federation = sites_of(NUMBER)
    model = linear(NUMBER, l2=0.3)
    right = np.random.default_rng(1).normal(0, 1, (5, 4))
    without = [0, 1, 2, 3, NOBODY]
    stacked = {"dense_0/kernel": right[:, :3, None].astype(np.float32), "dense_0/bias": right[:, 3:].astype(np.float32)}
    state = solve(
        federation,
        model,
        model.init(jax.random.key(0)),
        stacked,
        without,
        8,
        weights=weights,
        damping=0.05,
        tolerance=1e-6,
    )
    for column, left_out in enumerate(without):
        taking = [i for i, size in enumerate(SIZES) if size and i != left_out]
        counts = [len(rows[i][1]) if weights == "samples" else 1 for i in taking]
        own = [2 * with_intercept(rows[i][0]).T @ with_intercept(rows[i][0]) / len(rows[i][1]) for i in taking]
        hessian = sum(n * h for n, h in zip(counts, own, strict=True)) / sum(counts)
        hessian += np.diag([0.35, 0.35, 0.35, 0.05])
        found = np.append(
            np.asarray(state["solution"]["dense_0/kernel"])[column, :, 0], state["solution"]["dense_0/bias"][column]
        )
        np.testing.assert_allclose(found, np.linalg.solve(hessian, right[column]), rtol=2e-4, atol=1e-5)


def test_logistic_systems_are_solved_as_by_a_hessian_written_down():
    # Softmax with two columns: the Hessian is that of one column, p (1 - p) x x', times [[1, -1], [-1, 1]].
    rows, federation = sites_of(YES_OR_NO)
    model = logistic(YES_OR_NO)
    generator = np.random.default_rng(5)
    at = generator.normal(0, 0.5, (4, 2)).astype(np.float32)
    right = generator.normal(0, 1, (2, 4, 2)).astype(np.float32)
    params = {"dense_0/kernel": at[:3], "dense_0/bias": at[3]}
    stacked = {"dense_0/kernel": right[:, :3], "dense_0/bias": right[:, 3]}
    state = solve(federation, model, params, stacked, [1, NOBODY], 20, damping=0.1, tolerance=1e-6)
    for column, taking in ((0, (0, 3)), (1, (0, 1, 3))):
        x = with_intercept(np.concatenate([rows[i][0] for i in taking]))
        p = 1 / (1 + np.exp(-x @ (at[:, 1] - at[:, 0]).astype(np.float64)))
        one = (x * (p * (1 - p))[:, None]).T @ x / len(x)
        hessian = np.kron(one, [[1, -1], [-1, 1]]) + 0.1 * np.eye(8)
        expected = np.linalg.solve(hessian, right[column].ravel().astype(np.float64)).reshape(4, 2)
        found = np.vstack(
            [state["solution"]["dense_0/kernel"][column], state["solution"]["dense_0/bias"][column][None]]
        )
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert np.all(np.asarray(state["left"]) <= 1e-6)


def test_columns_that_are_done_stay_put_and_a_right_side_of_zero_has_the_solution_zero():
    _, federation = sites_of(NUMBER)
    model = linear(NUMBER)
    right = {"dense_0/kernel": np.ones((2, 3, 1), np.float32), "dense_0/bias": np.ones((2, 1), np.float32)}
    right = {
        name: value * np.array([1, 0], np.float32).reshape(2, *(1,) * (value.ndim - 1)) for name, value in right.items()
    }
    # Four parameters: conjugate gradients are done after four rounds, up to rounding.
    early, late = (
        solve(federation, model, model.init(jax.random.key(0)), right, [NOBODY] * 2, rounds, tolerance=1e-4)
        for rounds in (5, 12)
    )
    assert 0 < early["left"][0] <= 1e-4
    assert not np.asarray(late["level"]).any()
    for name, steps in late["solution"].items():
        np.testing.assert_array_equal(steps, early["solution"][name])
        assert not np.asarray(steps[1]).any()
        assert np.asarray(steps[0]).all()


@pytest.mark.slow
def test_a_loss_that_does_not_bend_upwards_stops_its_column():
    _, federation = sites_of(NUMBER)

    def loss(params, batch, key):
        return -jnp.sum(jnp.square(params["w"])) * jnp.minimum(1.0, jnp.sum(batch.mask))

    model = Model(lambda key: {"w": jnp.zeros(2)}, loss, lambda params, x: x[:, 0], jax.grad(loss))
    right = {"w": np.ones((1, 2), np.float32)}
    state = solve(federation, model, {"w": np.zeros(2, np.float32)}, right, [NOBODY], 4, damping=0.5)
    # The Hessian is -2, damped -1.5: no step can be right.
    assert bool(state["level"][0])
    assert not np.asarray(state["solution"]["w"]).any()
    # With enough damping the same system is (-2 + 4) step = 1.
    state = solve(federation, model, {"w": np.zeros(2, np.float32)}, right, [NOBODY], 4, damping=4.0)
    np.testing.assert_allclose(state["solution"]["w"], 0.5 * np.ones((1, 2)), rtol=1e-5)


def test_an_answer_is_as_large_as_its_terms_say(model):
    """One column a site, each a vector of 8 parameters and a count, and the number of rows."""
    params = model.init(jax.random.key(0))
    right = jax.tree.map(lambda a: jnp.stack([a] * 4), params)
    told = numbers_told(curvature(model), {"model": params, "right": right, "without": jnp.arange(4)})
    assert told == terms_of(curvature).numbers(Extent(parameters=8, sites=4)) == 37
