import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import hadamard as matrix

from wardround.core.contracts import Message
from wardround.transforms.kashin import kashin
from wardround.transforms.rotation import BlockFrame, frame_for, random_signs, slots_of

KEY = jax.random.key(3)


def coded(vector, **settings):
    link = kashin(smallest=1, **settings)
    sent = jax.jit(lambda m: link.up(m, m, KEY))(Message({"update": jnp.asarray(vector)}))
    return link, sent, np.asarray(sent.arrays["update"]["kashin/spread"])


def by_hand(vector, words, frame: BlockFrame) -> np.ndarray:
    """Appendix A.1 with n = 2 and delta 1, with the frame as a matrix: U has one column an entry."""
    signs = np.asarray(random_signs(words, frame))[:, 0]
    columns = (matrix(frame.block) * signs / np.sqrt(frame.block))[:, slots_of(frame)[: len(vector)]]
    level = np.linalg.norm(vector) / np.sqrt(frame.block)
    cut = np.clip(columns @ vector, -level, level)
    return cut + columns @ (vector - columns.T @ cut)


def test_it_is_the_algorithm_of_the_appendix():
    """Eighty entries in 128 slots, the thesis' own example."""
    vector = np.random.default_rng(0).normal(size=80).astype(np.float32)
    _, sent, found = coded(vector, block=128)
    assert found.shape == (128,)
    words = sent.arrays["update"]["kashin/seed"]
    np.testing.assert_allclose(found, by_hand(vector.astype(np.float64), words, frame_for(80, 128, 1.125)), atol=1e-5)


def test_the_representation_is_exact():
    vector = np.random.default_rng(1).standard_t(3, size=5000).astype(np.float32)
    for iterations in (1, 3):
        link, sent, _ = coded(vector, iterations=iterations)
        np.testing.assert_allclose(jax.jit(link.release)((), sent).arrays["update"], vector, atol=1e-4)


def test_more_iterations_and_more_slots_make_the_numbers_more_alike():
    vector = np.random.default_rng(2).normal(size=2**12).astype(np.float32)

    def peak(**settings) -> float:
        found = coded(vector, **settings)[2]
        return float(np.abs(found).max() / np.sqrt(np.square(found).mean()))

    rotated, once, often = (peak(iterations=count, spread=2.0) for count in (1, 2, 4))
    assert rotated > 1.15 * once
    assert once > 1.1 * often
    assert once < peak(iterations=2, spread=1.1)


def test_scattered_entries_gain_where_zeros_at_the_end_would_not():
    """With 64 entries and 64 zeros behind them the transform says everything twice: every number stands there twice."""
    vector = np.random.default_rng(3).normal(size=64).astype(np.float32)
    found = coded(vector, block=128)[2]
    assert len(np.unique(np.abs(found).round(5))) > 100
    appended = matrix(128) @ np.concatenate([vector, np.zeros(64)])
    assert len(np.unique(appended.round(5))) == 64
