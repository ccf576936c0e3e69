import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.core import trees
from wardround.core.chain import chain
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.transforms.hadamard import hadamard
from wardround.transforms.quantize import quantize


def heard(values, key, **settings):
    link = quantize(smallest=1, **settings)
    message = Message({"update": jnp.asarray(values, jnp.float32)})
    return np.asarray(link.release((), link.up(message, message, key)).arrays["update"])


def test_two_bits_are_four_levels_from_end_to_end():
    # From 0 to 6 the levels are 0, 2, 4 and 6; 3 goes to 2 or 4, each half of the time.
    values = np.concatenate([[0.0, 6.0, 2.0, 4.0], np.full(4000, 3.0)])
    found = heard(values, jax.random.key(0), bits=2, run=0)
    np.testing.assert_allclose(found[:4], [0, 6, 2, 4])
    assert set(found[4:]) == {2.0, 4.0}
    assert abs(found[4:].mean() - 3) < 5 / np.sqrt(4000)


def test_the_mean_is_right_and_the_variance_is_that_of_two_neighbours():
    # Levels 0 and 1; 0.25 is 1 with chance 1/4: mean 1/4, variance 3/16.
    values = np.concatenate([[0.0, 1.0], np.full(20_000, 0.25)])
    found = heard(values, jax.random.key(1), bits=1, run=0)[2:]
    assert found.mean() == pytest.approx(0.25, abs=5 * np.sqrt(3 / 16 / 20_000))
    assert found.var() == pytest.approx(3 / 16, rel=0.05)


def test_bytes_are_bits_over_eight_and_eight_for_the_ends_of_a_run():
    message = Message({"update": jnp.arange(10_000.0)})
    for bits, size in ((1, 1250), (5, 6250), (16, 20_000)):
        left = quantize(bits=bits).up(message, message, jax.random.key(0))
        assert trees.nbytes(left) == size + 3 * 8 + 8  # three runs of at most 4,096, and the seed


def test_a_run_with_one_value_is_exact_and_runs_do_not_disturb_each_other():
    values = np.concatenate([np.full(4096, 1e6), np.linspace(0, 1, 4096)])
    found = heard(values, jax.random.key(0), bits=8)
    np.testing.assert_array_equal(found[:4096], np.full(4096, np.float32(1e6)))
    assert np.abs(found[4096:] - values[4096:]).max() <= 1 / 255


def test_rotated_first_the_error_of_a_spiky_array_is_far_smaller():
    values = jnp.asarray(np.random.default_rng(0).standard_t(3, size=2**15), jnp.float32)
    message = Message({"update": values})

    def error(link) -> float:
        back = link.release(link.init(message), link.up(message, message, jax.random.key(0))).arrays["update"]
        return float(jnp.square(back - values).sum() / jnp.square(values).sum())

    assert error(chain([hadamard(), quantize(bits=4)])) < error(quantize(bits=4)) / 4


@pytest.mark.parametrize("bits", [0, 17])
def test_bits_beyond_1_to_16_are_refused(bits):
    with pytest.raises(Refusal, match="'bits' must be at least 1 and at most 16"):
        registry.find("transform", "quantize").build(bits=bits)
    for name, key in (("subsample", "fraction"), ("top_k", "fraction")):
        for wrong in (0.0, 1.5):
            with pytest.raises(Refusal, match=f"'{key}' must be greater than 0 and at most 1"):
                registry.find("transform", name).build(**{key: wrong})
