import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.images.folder import disc
from wardround.core.contracts import Batch, Task
from wardround.models.images.max_pool import larger, largest_of_four
from wardround.models.images.u_net import u_net


def test_windows_and_slopes_by_hand():
    x = jnp.float32([[1, 5, 0, 0, 9], [3, 2, 0, 0, 9], [9, 9, 9, 9, 9]])[None, ..., None]
    assert largest_of_four(x)[0, ..., 0].tolist() == [[5, 0]]  # the odd row and column are left out
    slope = jax.grad(lambda one: largest_of_four(one).sum())(x)[0, ..., 0]
    # The slope of a window goes to its largest value, of equal ones to the first.
    assert slope.tolist() == [[0, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert larger(jnp.float32(2), jnp.float32(-2)) == 2


def test_no_slope_is_lost_however_a_step_is_compiled():
    """Forwards and backwards the same slope: without fused kernels, as quick tests compile, some was lost backwards."""
    model = u_net(Task((8, 8, 1), (), "mask", segmentation=True), filters=2, depth=1)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    params, moved = (
        {name: scale * rng.normal(size=one.shape).astype(np.float32) for name, one in shapes.items()}
        for scale in (0.3, 1.0)
    )
    params = {name: one + name.endswith("scale") for name, one in params.items()}
    drawn = [disc(seed, 8) for seed in range(6)]
    x = jnp.asarray([one[0] for one in drawn], jnp.float32)[..., None] / 255
    batch = Batch(x, jnp.asarray([one[1] > 0 for one in drawn], jnp.uint8), jnp.ones(6))
    slope = jax.jit(model.gradient)(params, batch, jax.random.key(0))
    backwards = sum(float(jnp.sum(slope[name] * moved[name])) for name in params)
    ahead = jax.jit(lambda at: jax.jvp(lambda one: model.loss(one, batch, jax.random.key(0)), (at,), (moved,))[1])
    assert backwards == pytest.approx(float(ahead(params)), abs=1e-5)
