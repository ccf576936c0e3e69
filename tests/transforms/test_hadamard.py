import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import hadamard as matrix

from wardround.core.contracts import Message
from wardround.transforms.hadamard import hadamard
from wardround.transforms.rotation import block_sums, frame_for, transform_blocks

KEY = jax.random.key(1)


@pytest.mark.parametrize("size", [1, 2, 8, 64, 512])
def test_the_transform_is_that_of_the_matrix(size):
    laid = np.random.default_rng(0).normal(size=(size, 3)).astype(np.float32)
    np.testing.assert_allclose(transform_blocks(jnp.asarray(laid)), matrix(size) @ laid, atol=1e-4)


def test_blocks_are_4096_or_an_eighth_of_the_array():
    # (entries, slots of a block, blocks): padding is below an eighth.
    assert [frame_for(n)[:3] for n in (1024, 10_000, 10**6)] == [(1024, 128, 8), (10_000, 1024, 10), (10**6, 4096, 245)]
    assert frame_for(80, block=128)[:3] == (80, 128, 1)
    assert frame_for(3)[:3] == (3, 4, 1)


def test_nothing_is_lost_and_one_large_number_is_spread_over_its_block():
    spike = jnp.zeros((64, 32)).at[5, 7].set(8.0)
    link = hadamard()
    sent = link.down((), Message({"params": spike}), KEY)
    rotated = np.asarray(sent.arrays["params"]["hadamard/rotated"])
    # 2,048 entries are eight blocks of 256 slots: the spike becomes 256 numbers of size 8 / sqrt(256) = 1/2.
    assert sorted(set(np.abs(rotated))) == [0.0, 0.5]
    assert np.count_nonzero(rotated) == 256
    np.testing.assert_array_equal(link.receive(sent).arrays["params"], spike)


def test_every_message_has_signs_of_its_own_and_the_same_outside_of_a_program():
    link, message = hadamard(), Message({"update": jnp.arange(2048.0)})
    first, second = (link.up(message, message, jax.random.key(n)).arrays["update"] for n in (1, 2))
    assert not np.array_equal(first["hadamard/rotated"], second["hadamard/rotated"])
    with jax.disable_jit():  # as a coordinator does it, and whoever replays its transcript
        slowly = link.up(message, message, jax.random.key(1)).arrays["update"]
    compiled = jax.jit(lambda m: link.up(m, m, jax.random.key(1)))(message).arrays["update"]
    np.testing.assert_array_equal(slowly["hadamard/rotated"], compiled["hadamard/rotated"])


def test_sums_of_blocks():
    np.testing.assert_array_equal(block_sums(jnp.ones((64, 5))), np.full(5, 64.0))
