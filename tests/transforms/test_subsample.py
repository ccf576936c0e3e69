import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.core import trees
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.transforms.subsample import subsample

VALUES = jnp.asarray(np.random.default_rng(0).normal(size=2001), jnp.float32)
ANSWER = Message({"update": VALUES})


@pytest.mark.parametrize("fraction", [0.4, 0.5, 1.0, 1e-9])
def test_a_fraction_of_the_numbers_is_sent_and_a_seed(fraction):
    link = subsample(fraction=fraction)
    left = link.up(ANSWER, ANSWER, jax.random.key(0))
    kept = max(1, int(np.ceil(2001 * fraction)))
    assert left.arrays["update"]["subsample/kept"].shape == (kept,)
    assert trees.nbytes(left) == 4 * kept + 8
    back = np.asarray(link.release((), left).arrays["update"])
    places = np.flatnonzero(back)
    assert len(places) == kept
    # Each number that came stands at its own place, times the size of its group.
    times = back[places] / np.asarray(VALUES)[places]
    assert set(np.round(times, 4)) <= {np.floor(2001 / kept), np.ceil(2001 / kept)}


def test_the_mean_is_right_and_the_error_is_what_theory_says():
    link = subsample(fraction=0.4)

    @jax.jit
    @jax.vmap
    def heard(key):
        return link.release((), link.up(ANSWER, ANSWER, key)).arrays["update"]

    many = np.asarray(heard(jax.random.split(jax.random.key(1), 2000)), np.float64)
    values = np.asarray(VALUES, np.float64)
    # An entry of a group of w is w x with chance 1/w: variance (w - 1) x². A deviation of the mean over 2,000 draws is
    # at most sqrt(2 / 2000) |x| = 0.032 |x|; the largest of 2,001 stays within five of them.
    assert np.all(np.abs(many.mean(axis=0) - values) <= 5 * 0.032 * np.abs(values))
    error = np.square(many - values).sum(axis=1).mean() / np.square(values).sum()
    # Of 801 groups 399 have three entries and 402 have two: the first 1,197 entries have variance 2 x², the others x².
    expected = (2 * np.square(values[:1197]).sum() + np.square(values[1197:]).sum()) / np.square(values).sum()
    assert error == pytest.approx(expected, rel=0.02)


def test_the_model_is_left_alone_unless_asked_for():
    assert subsample().down((), ANSWER, jax.random.key(0)) is ANSWER
    assert "subsample/kept" in subsample(direction="both").down((), ANSWER, jax.random.key(0)).arrays["update"]


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.01, float("nan"), "half"])
def test_a_fraction_beyond_0_to_1_is_refused(fraction):
    with pytest.raises(Refusal, match="'fraction' must be"):
        registry.find("transform", "subsample").build(fraction=fraction)
