from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.core.chain import chain
from wardround.core.contracts import Message
from wardround.transforms.clip import clip

KEY = jax.random.key(0)
NOTHING = Message({})


def sent(a: Any, b: Any, weight: float) -> Message:
    """An answer whose update is (a, b), multiplied by its weight."""
    update = {"a": weight * jnp.asarray(a, jnp.float32), "b": weight * jnp.asarray(b, jnp.float32)}
    return Message({"update": update, "weight": jnp.asarray(weight, jnp.float32)}, (("phase", "one"),))


def test_the_update_is_measured_without_its_weight_and_over_all_arrays() -> None:
    # (3), (0, 4) has length 5; bounded by 2 it becomes (1.2), (0, 1.6), sent times the weight 10.
    answer = jax.jit(clip(norm=2.0).up)(NOTHING, sent([3.0], [[0.0, 4.0]], 10.0), KEY)
    np.testing.assert_allclose(answer.arrays["update"]["a"], [12.0], rtol=1e-6)
    np.testing.assert_allclose(answer.arrays["update"]["b"], [[0.0, 16.0]], rtol=1e-6)
    assert float(answer.arrays["weight"]) == 10.0
    assert answer.meta == (("phase", "one"),)


def test_a_short_update_leaves_as_it_is() -> None:
    before = sent([3.0], [[0.0, 4.0]], 100.0)
    after = clip(norm=5.0).up(NOTHING, before, KEY)
    jax.tree.map(np.testing.assert_array_equal, after, before)


def test_a_zero_update_and_an_empty_site_stay_zero() -> None:
    for weight in (0.0, 7.0):
        after = clip(norm=1.0).up(NOTHING, sent([0.0], [[0.0, 0.0]], weight), KEY)
        assert not np.asarray(after.arrays["update"]["b"]).any()


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e10, 1e30])
def test_no_update_leaves_longer_than_the_bound(size: float) -> None:
    values = np.random.default_rng(0).normal(size=50) * size
    after = clip(norm=0.5).up(NOTHING, sent(values[:20], values[20:], 1000.0), KEY)
    update = np.concatenate([after.arrays["update"]["a"], after.arrays["update"]["b"]])
    assert np.linalg.norm(update.astype(np.float64)) / 1000 <= 0.5 * (1 + 1e-5)


def test_everywhere_else_it_does_nothing_and_it_works_in_a_chain() -> None:
    link, message = clip(norm=1.0), sent([3.0], [[0.0, 4.0]], 2.0)
    for result in (link.down((), message, KEY), link.receive(message), link.release((), message)):
        jax.tree.map(np.testing.assert_array_equal, result, message)
    assert not link.sum_only
    # Bounded by 2, then by 1: as by 1 alone.
    twice = chain([clip(norm=2.0), link]).up(NOTHING, message, KEY)
    once = link.up(NOTHING, message, KEY)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), twice, once)
