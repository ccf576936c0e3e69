"""Products whose gradient is laid out anew: the same numbers as automatic differentiation gives, and as NumPy does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.models.products import ROWS_BY_WEIGHTS, multiply, product

RANDOM = np.random.default_rng(278)


def some(*shape: int) -> jax.Array:
    return jnp.asarray(RANDOM.normal(size=shape), jnp.float32)


@pytest.mark.parametrize("outputs", [1, 2, 4, 5, 9])
def test_gradients_are_those_of_the_textbook(outputs: int) -> None:
    rows, weights, slope = some(7, 6), some(6, outputs), some(7, outputs)
    value, back = jax.vjp(multiply, rows, weights)
    to_rows, to_weights = back(slope)
    exact_rows, exact_weights, exact_slope = (np.asarray(a, np.float64) for a in (rows, weights, slope))
    np.testing.assert_allclose(value, exact_rows @ exact_weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(to_rows, exact_slope @ exact_weights.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(to_weights, exact_rows.T @ exact_slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 6), (7, 6), (3, 4, 6)], ids=["one row", "rows", "rows of steps"])
def test_stands_in_for_the_product_of_layers(shape: tuple[int, ...]) -> None:
    rows, weights = some(*shape), some(6, 3)
    dimensions = (((len(shape) - 1,), (0,)), ((), ()))

    def loss(weights: jax.Array, times: object) -> jax.Array:
        return jnp.sum(jnp.sin(times(rows, weights, dimensions, precision=None)))  # type: ignore[operator]

    for value, plain in zip(
        jax.value_and_grad(loss)(weights, product), jax.value_and_grad(loss)(weights, jax.lax.dot_general), strict=True
    ):
        np.testing.assert_allclose(value, plain, rtol=1e-5, atol=1e-6)


def test_what_is_asked_beyond_a_plain_product_is_done() -> None:
    rows, weights = some(4, 6), some(6, 3)
    asked = product(rows, weights, ROWS_BY_WEIGHTS, preferred_element_type=jnp.bfloat16)
    assert asked.dtype == jnp.bfloat16


def test_sites_side_by_side_and_second_derivatives() -> None:
    """As the engine batches sites, and as curvature and full MAML differentiate a gradient."""
    rows, weights, along = some(5, 7, 6), some(5, 6, 3), some(5, 6, 3)

    def slope(rows: jax.Array, weights: jax.Array, times: object) -> jax.Array:
        return jax.grad(lambda w: jnp.sum(jnp.tanh(times(rows, w)) ** 2))(weights)  # type: ignore[operator]

    def bend(times: object) -> jax.Array:
        def one(rows: jax.Array, weights: jax.Array, along: jax.Array) -> jax.Array:
            return jax.jvp(lambda w: slope(rows, w, times), (weights,), (along,))[1]

        return jax.vmap(one)(rows, weights, along)

    np.testing.assert_allclose(bend(multiply), bend(jnp.matmul), rtol=1e-4, atol=1e-5)
