import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.contracts import Message
from wardround.transforms.top_k import top_k

KEY = jax.random.key(0)


def said(values) -> Message:
    return Message({"update": {"b": jnp.asarray(values, jnp.float32)}, "weight": jnp.float32(5)})


def heard(link, left) -> np.ndarray:
    return np.asarray(link.release((), left).arrays["update"]["b"])


def test_the_largest_leave_and_the_rest_comes_with_the_next_answer():
    link = top_k(fraction=0.25, smallest=8)
    first = said([0.1, -9, 2, 0, 3, 0.5, -4, 1])
    left, carried = link.up_carried(first, first, link.init_carried(first), KEY)
    np.testing.assert_array_equal(heard(link, left), [0, -9, 0, 0, 0, 0, -4, 0])
    np.testing.assert_allclose(carried[0], [0.1, 0, 2, 0, 3, 0.5, 0, 1], atol=1e-7)
    # Next time 1 is added to every entry: 3 + 1 and 2 + 1 are the largest now.
    second = said(np.ones(8))
    left, carried = link.up_carried(second, second, carried, KEY)
    np.testing.assert_allclose(heard(link, left), [0, 0, 3, 0, 4, 0, 0, 0])
    np.testing.assert_allclose(carried[0], [1.1, 1, 0, 1, 0, 1.5, 1, 2], atol=1e-6)
    # Three bits a place, two places in a group of eight: 3 bytes; two values, the seed, the weight.
    assert trees.nbytes(left) == 3 + 2 * 4 + 8 + 4


def test_nothing_is_ever_lost_with_feedback_and_something_without():
    link = top_k(fraction=0.1, smallest=100)
    generator, carried, total, sent = np.random.default_rng(0), link.init_carried(said(np.zeros(100))), 0, 0
    for _ in range(30):
        values = generator.normal(size=100).astype(np.float32)
        answer = said(values)
        left, carried = link.up_carried(answer, answer, carried, KEY)
        total, sent = total + values, sent + heard(link, left)
    np.testing.assert_allclose(sent + np.asarray(carried[0]), total, atol=1e-4)
    plain = top_k(fraction=0.1, feedback=False, smallest=100)
    assert plain.up_carried is None
    assert plain.init_carried is None


def test_a_place_that_does_not_exist_is_dropped():
    """Five places need three bits, so a site could name the places 5 to 7."""
    link = top_k(fraction=1.0, feedback=False, smallest=5)
    left = link.up(said([1, 2, 3, 4, 5]), said([1, 2, 3, 4, 5]), KEY)
    node = left.arrays["update"]["b"]
    node["top_k/places"] = jnp.full_like(node["top_k/places"], 255)
    np.testing.assert_array_equal(heard(link, left), np.zeros(5))


def test_the_model_is_sent_whole():
    assert top_k().down((), said(np.ones(5000)), KEY).arrays["update"]["b"].shape == (5000,)
