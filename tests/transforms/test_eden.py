import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from wardround.core import trees
from wardround.core.contracts import Message
from wardround.transforms.eden import CENTROIDS, eden

ERRORS = {1: np.pi / 2 - 1, 2: 0.1331, 3: 0.03578, 4: 0.00959}


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_the_values_are_the_best_for_a_normal_distribution(bits):
    """Each is the mean of the part of the distribution that lies nearer to it than to the others (Lloyd and Max)."""
    own = np.array(CENTROIDS[bits])
    borders = np.concatenate([[0.0], (own[1:] + own[:-1]) / 2, [np.inf]])
    means = (norm.pdf(borders[:-1]) - norm.pdf(borders[1:])) / (norm.cdf(borders[1:]) - norm.cdf(borders[:-1]))
    np.testing.assert_allclose(own, means, atol=1e-6)
    # Without bias the error is 1/c - 1, where c is what the values catch of the variance.
    caught = 2 * np.sum(own**2 * (norm.cdf(borders[1:]) - norm.cdf(borders[:-1])))
    assert 1 / caught - 1 == pytest.approx(ERRORS[bits], rel=2e-3)


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_the_error_is_that_of_the_closed_form_for_any_array(bits):
    generator, link = np.random.default_rng(0), eden(bits=bits)
    spiky = generator.standard_t(3, size=2**16).astype(np.float32)
    lopsided = generator.exponential(size=2**16).astype(np.float32)
    for values in (spiky, lopsided):
        message = Message({"update": jnp.asarray(values)})
        left = jax.jit(lambda m: link.up(m, m, jax.random.key(0)))(message)
        # 16 blocks of 4,096: the codes, a scale a block, the seed.
        assert trees.nbytes(left) == bits * 2**13 + 16 * 4 + 8
        back = np.asarray(jax.jit(link.release)((), left).arrays["update"])
        assert np.square(back - values).sum() / np.square(values).sum() == pytest.approx(ERRORS[bits], rel=0.03)


def test_the_mean_of_many_draws_is_right():
    values = jnp.asarray(np.random.default_rng(1).normal(size=4096), jnp.float32)
    message, link = Message({"update": values}), eden(bits=1)

    @jax.jit
    @jax.vmap
    def heard(key):
        return link.receive(link.down((), message, key)).arrays["update"]

    mean = heard(jax.random.split(jax.random.key(2), 400)).mean(axis=0)
    error = float(jnp.square(mean - values).sum() / jnp.square(values).sum())
    assert error == pytest.approx(ERRORS[1] / 400, rel=0.1)
