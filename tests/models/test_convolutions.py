"""Convolutions and their slopes: the numbers of SciPy and of XLA's own differentiation, in the library's routines."""

import platform
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import correlate2d

from wardround.engine.machine.operations import count_operations
from wardround.models.convolutions import Geometry, convolve, neighbours_together

RANDOM = np.random.default_rng(64)
SAME, NONE = ((1, 1), (1, 1)), ((0, 0), (0, 0))
CASES = {
    # (height, width, channels), (kernel height, kernel width, features), stride, margins
    "wide enough for the library": ((8, 9, 3), (3, 3, 20), 1, SAME),
    "more channels than features": ((8, 9, 20), (3, 3, 3), 1, SAME),
    "neighbours together": ((8, 8, 3), (3, 3, 16), 1, SAME),
    "neighbours together, few features": ((6, 16, 5), (3, 3, 4), 1, SAME),
    "narrow, and nothing to put together": ((6, 7, 5), (3, 3, 4), 1, NONE),
    "stride 2, odd sides": ((9, 11, 2), (5, 5, 3), 2, ((2, 2), (2, 2))),
    "stride 2, neighbours together": ((8, 16, 2), (5, 5, 8), 2, ((1, 2), (1, 2))),
    "stride 2, a rest": ((9, 10, 18), (5, 5, 3), 2, NONE),
    "stride longer than the kernel": ((7, 8, 2), (2, 2, 3), 3, ((0, 1), (1, 0))),
    "kernel larger than the image": ((3, 3, 2), (5, 5, 2), 1, ((2, 2), (2, 2))),
    "one pixel": ((6, 6, 3), (1, 1, 2), 1, NONE),
    "margins larger than the kernel": ((6, 6, 3), (3, 3, 2), 2, ((4, 0), (0, 5))),
}
cases = pytest.mark.parametrize("name", CASES)


def some(*shape: int) -> jax.Array:
    return jnp.asarray(RANDOM.normal(size=shape), jnp.float32)


def given(name: str, rows: int = 3):
    image, (tall, wide, features), stride, margins = CASES[name]
    return some(rows, *image), some(tall, wide, image[2], features), stride, margins


def by_xla(x, kernel, stride, margins):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), margins, dimension_numbers=numbers)


def assert_near(found, expected) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * float(jnp.abs(other).max()))


@cases
def test_the_numbers_of_scipy(name):
    x, kernel, stride, margins = given(name)
    found = convolve(x, kernel, stride, margins)
    padded = np.pad(np.asarray(x, np.float64), ((0, 0), *margins, (0, 0)))
    expected = np.zeros(found.shape)
    for row, channel, feature in product(range(len(x)), range(x.shape[3]), range(kernel.shape[3])):
        one = correlate2d(padded[row, :, :, channel], np.asarray(kernel, np.float64)[:, :, channel, feature], "valid")
        expected[row, :, :, feature] += one[::stride, ::stride]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@cases
def test_slopes_are_those_of_automatic_differentiation(name):
    x, kernel, stride, margins = given(name)
    value, back = jax.vjp(lambda x, kernel: convolve(x, kernel, stride, margins), x, kernel)
    slope = some(*value.shape)
    assert_near(back(slope), jax.vjp(lambda x, kernel: by_xla(x, kernel, stride, margins), x, kernel)[1](slope))


@pytest.mark.parametrize("name", ["neighbours together, few features", "stride 2, odd sides"])
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)], ids=["both", "images", "kernels"])
def test_sites_side_by_side(name, axes):
    x, kernel, stride, margins = given(name)
    x, kernel = (jnp.stack([a, 2 * a]) if axis == 0 else a for a, axis in zip((x, kernel), axes, strict=True))

    def slopes(way):
        return jax.value_and_grad(lambda x, kernel: jnp.sum(jnp.sin(way(x, kernel, stride, margins))), (0, 1))

    one_by_one = [
        slopes(by_xla)(*(a[site] if axis == 0 else a for a, axis in zip((x, kernel), axes, strict=True)))
        for site in range(2)
    ]
    expected = jax.tree.map(lambda *own: jnp.stack(own), *one_by_one)
    assert_near(jax.vmap(slopes(convolve), axes)(x, kernel), expected)


@pytest.mark.parametrize("name", ["neighbours together", "stride 2, a rest"])
def test_second_derivatives_both_ways(name):
    """As curvature and MAML (forward over the way back) and an episode of FedDG (back over the way back) need them."""
    x, kernel, stride, margins = given(name)
    along = some(*kernel.shape)

    def bends(way):
        def slope(kernel):
            def loss(kernel):
                seen = jnp.sin(way(x, kernel, stride, margins))[:, :3, :3]
                return jnp.sum(jnp.tanh(way(seen, other, 1, SAME)))

            return jax.grad(loss)(kernel)

        other = jnp.ones((2, 2, kernel.shape[3], 2)) / 10
        return jax.jvp(slope, (kernel,), (along,))[1], jax.grad(lambda k: jnp.sum(slope(k) * along))(kernel)

    forward, back = bends(convolve)
    assert_near((forward, back), bends(by_xla))
    assert_near(forward, back)  # a Hessian is symmetric


def test_a_convolution_says_how_many_operations_it_takes():
    x, kernel, stride, margins = given("stride 2, a rest")
    # 3 rows, 3 x 3 places, 3 features, windows of 5 x 5 x 18: 2 for every product. Each slope takes as many.
    once = 2 * 3 * 3 * 3 * 3 * 25 * 18
    assert count_operations(lambda x, k: convolve(x, k, stride, margins), x, kernel) == once
    both = jax.grad(lambda x, k: jnp.sum(jnp.sin(convolve(x, k, stride, margins))), (0, 1))
    assert count_operations(both, x, kernel) == 3 * once
    assert Geometry(x.shape, kernel.shape, stride, margins).outputs == (3, 3, 3, 3)


def test_places_are_put_together_only_where_it_helps():
    assert neighbours_together(64, 3, 16) == 2  # 32 features
    assert neighbours_together(64, 3, 4) == 8
    assert neighbours_together(12, 3, 4) == 12  # 8 does not divide 12
    assert neighbours_together(7, 3, 16) == 7
    assert neighbours_together(64, 3, 17) == neighbours_together(64, 17, 3) == 1
    assert neighbours_together(3, 1, 4) == 1  # not enough even of all


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the library is XLA's for these processors")
@pytest.mark.parametrize(
    ("image", "kernel", "stride"),
    [((16, 16, 8), (3, 3, 16), 1), ((16, 16, 24), (3, 3, 16), 1), ((16, 16, 2), (5, 5, 20), 2)],
    ids=["narrow", "more channels", "stride 2"],
)
def test_inside_a_loop_all_three_are_the_librarys(image, kernel, stride):
    """The compiler's own routine is ten to fifty times slower, and nothing but the clock would tell."""
    x, kernel = jnp.zeros((4, *image)), jnp.zeros((*kernel[:2], image[2], kernel[2]))

    def loop(x, kernel):
        def step(_, both):
            return jax.grad(lambda x, k: jnp.sum(jnp.sin(convolve(x, k, stride, SAME))), (0, 1))(*both)

        return jax.lax.fori_loop(0, 3, step, (x, kernel))

    lines = jax.jit(loop).lower(x, kernel).compile().as_text().splitlines()
    used = [line for line in lines if " convolution(" in line]
    assert len(used) == (3 if stride == 1 else 6)  # four of them for the images, where the stride is 2
    assert all("ROOT" in line for line in used), "a convolution outside of a fusion for the library"


@pytest.mark.parametrize("size", [17, 18], ids=["no rest", "a rest"])
def test_without_margins_the_library_gets_one_and_computes_no_place_too_many(size):
    """Half as many operations again, in a kernel of 5 x 5, for a place more each way: nothing but the clock tells."""
    x, kernel = jnp.zeros((4, size, size, 2)), jnp.zeros((5, 5, 2, 20))

    def slope_of_kernel(kernel):
        return jax.grad(lambda k: jnp.sum(convolve(x, k, 2, NONE)))(kernel)

    lines = jax.jit(slope_of_kernel).lower(kernel).as_text().splitlines()
    [used] = [line for line in lines if "stablehlo.convolution(" in line]
    assert "pad = [[0, 2], [0, 0]]" in used, "no margin, with which the library takes three times as long"
    assert used.endswith("-> tensor<2x5x5x20xf32>")
