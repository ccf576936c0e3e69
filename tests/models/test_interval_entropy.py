"""The loss of survival in the models' one place: beside cross entropy, by hand, and beside a pooled logistic fit."""

import jax
import jax.numpy as jnp
import numpy as np
import statsmodels.api as sm

from wardround.core.contracts import Batch, Task
from wardround.core.quality import row_losses
from wardround.data.survival.intervals import interval_names, label_numbers
from wardround.models.from_flax import cross_entropy, interval_entropy
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp


def task_of(horizons, features=1):
    return Task((features,), interval_names(horizons), "died", horizons)


def test_by_hand():
    # Probabilities 0.5, 0.3, 0.2. An event in interval 1: -log 0.3. Censored from interval 1 on: -log (0.3 + 0.2).
    # Censored from the start: everything is possible, and the loss is 0.
    outputs = jnp.log(jnp.tile(jnp.array([0.5, 0.3, 0.2]), (3, 1)))
    found = interval_entropy(outputs, jnp.array([1, 4, 3]))
    np.testing.assert_allclose(found, [-np.log(0.3), -np.log(0.5), 0.0], atol=1e-6)
    told = row_losses(np.tile([0.5, 0.3, 0.2], (3, 1)), np.array([1, 4, 3]))
    np.testing.assert_allclose(told, [-np.log(0.3), -np.log(0.5), 0.0], atol=1e-12)
    np.testing.assert_allclose(row_losses(jnp.exp(outputs), jnp.array([1, 4, 3])), told, atol=1e-6)


def test_without_censoring_it_is_cross_entropy_to_the_bit():
    rng = np.random.default_rng(0)
    outputs, y = jnp.asarray(rng.normal(0, 3, (50, 4)), jnp.float32), jnp.asarray(rng.integers(0, 4, 50))
    assert (np.asarray(interval_entropy(outputs, y)) == np.asarray(cross_entropy(outputs, y))).all()


def test_one_interval_without_censoring_is_binary_classification():
    # The same network, with "by 1" for the event and "after 1" for none, has the same loss and gradient.
    rng = np.random.default_rng(1)
    x, time = jnp.asarray(rng.normal(size=(64, 3)), jnp.float32), rng.exponential(1, 64)
    y = label_numbers(time, np.ones(64), (1.0,))
    batch = Batch(x, jnp.asarray(y), jnp.ones(64))
    survival, binary = mlp(task_of((1.0,), 3)), mlp(Task((3,), ("by 1", "after 1"), "died"))
    params = survival.init(jax.random.key(0))
    key = jax.random.key(1)
    np.testing.assert_allclose(survival.loss(params, batch, key), binary.loss(params, batch, key), rtol=1e-7)
    slopes = survival.gradient(params, batch, key), binary.gradient(params, batch, key)
    for name in params:
        np.testing.assert_allclose(slopes[0][name], slopes[1][name], atol=1e-7)
    np.testing.assert_array_equal(survival.predict(params, x), binary.predict(params, x))


def patients(rows, seed):
    rng = np.random.default_rng(seed)
    x = (rng.random(rows) < 0.4).astype(float)
    died, lost = rng.exponential(3 * np.exp(-0.7 * x)), rng.exponential(4, rows)
    return x, np.minimum(died, lost), (died <= lost).astype(float)


def fitted(x, labels, horizons):
    """All rows to convergence, by Newton in double precision on the model's own loss."""
    with jax.enable_x64(True):
        model = logistic(task_of(horizons))
        batch = Batch(jnp.asarray(x[:, None]), jnp.asarray(labels), jnp.ones(len(x)))
        params = jax.tree.map(lambda one: jnp.asarray(one, jnp.float64), model.init(jax.random.key(0)))
        flat, back = jax.flatten_util.ravel_pytree(params)
        loss = jax.jit(lambda numbers: model.loss(back(numbers), batch, jax.random.key(0)))
        slope, bend = jax.jit(jax.grad(loss)), jax.jit(jax.hessian(loss))
        for _ in range(30):  # the softmax has more parameters than it needs: the least step of those that fit
            flat = flat - jnp.linalg.pinv(bend(flat), rtol=1e-9) @ slope(flat)
        return np.asarray(model.predict(back(flat), jnp.array([[0.0], [1.0]])))


def test_the_hazards_are_those_of_a_pooled_logistic_regression():
    """Person-period rows: one for each interval that a patient began, with whether the event came in it.

    With one binary column and an interval of its own for every effect both models have one hazard for each group and
    interval, so they have the same maximum of the same likelihood.
    """
    horizons = (1.0, 2.0, 4.0)
    x, time, event = patients(600, 2)
    labels = label_numbers(time, event, horizons)
    chances = fitted(x, labels, horizons)
    left = 1 - np.concatenate([np.zeros((2, 1)), np.cumsum(chances[:, :-1], axis=1)[:, :-1]], axis=1)
    hazards = chances[:, :-1] / left
    rows, outcome = [], []
    for group, label in zip(x, labels, strict=True):
        last = label - 5 if label > 3 else min(label, 2)  # a censored patient (4 + k) survived what is before k
        for interval in range(last + 1):
            rows.append([*(np.arange(3) == interval).astype(float), *((np.arange(3) == interval) * group)])
            outcome.append(float(label == interval))
    fit = sm.GLM(np.array(outcome), np.array(rows), family=sm.families.Binomial()).fit(tol=1e-12)
    expected = 1 / (1 + np.exp(-np.stack([fit.params[:3], fit.params[:3] + fit.params[3:]])))
    np.testing.assert_allclose(hazards, expected, rtol=1e-6)


def test_one_horizon_is_a_logistic_regression_of_those_whose_fate_is_known():
    x, time, event = patients(400, 3)
    labels = label_numbers(time, event, (2.0,))
    chances = fitted(x, labels, (2.0,))
    known = labels < 2
    fit = sm.GLM(labels[known] == 0, sm.add_constant(x[known]), family=sm.families.Binomial()).fit(tol=1e-12)
    np.testing.assert_allclose(chances[:, 0], fit.predict(np.array([[1.0, 0.0], [1.0, 1.0]])), rtol=1e-6)
