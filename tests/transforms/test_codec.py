"""What all codes have in common: which arrays they touch, that their bytes are few, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.core import trees
from wardround.core.chain import chain, send_up
from wardround.core.codes.bit_field import packed_bytes
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.transforms.auto import auto
from wardround.transforms.clip import clip
from wardround.transforms.compression import compression
from wardround.transforms.eden import eden
from wardround.transforms.quantize import quantize
from wardround.transforms.random_bits import pack_bits, random_shares, unpack_bits
from wardround.transforms.secure_sum import secure_sum
from wardround.transforms.top_k import top_k

KEY = jax.random.key(0)


def said(size: int = 2000) -> Message:
    values = jnp.asarray(np.random.default_rng(0).normal(size=(size // 10, 10)), jnp.float32)
    return Message({"update": {"kernel": values, "bias": jnp.arange(10.0)}, "weight": jnp.float32(7)}, (("a", "b"),))


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8, 11, 16, 20])
def test_numbers_of_few_bits_are_packed_without_gaps(bits):
    codes = np.random.default_rng(bits).integers(0, 2**bits, 37)
    packed = pack_bits(jnp.asarray(codes, jnp.uint32), bits)
    # 37 numbers are five groups of eight, each of `bits` bytes.
    assert (packed.dtype, packed.size, packed_bytes(37, bits)) == (jnp.uint8, 5 * bits, 5 * bits)
    np.testing.assert_array_equal(unpack_bits(packed, bits, 37), codes)


def test_draws_are_even_and_of_their_seed():
    draws = np.asarray(random_shares(jnp.array([1, 2], jnp.uint32), 100_000))
    assert draws.min() >= 0
    assert draws.max() < 1
    # The mean of 100,000 even draws is within 4 deviations of 1/2: 4 / sqrt(12 * 100,000) = 0.0037.
    assert abs(draws.mean() - 0.5) < 0.0037
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 0.013
    assert (draws == np.asarray(random_shares(jnp.array([1, 2], jnp.uint32), 100_000))).all()
    other = np.asarray(random_shares(jnp.array([1, 3], jnp.uint32), 100_000))
    assert abs(np.corrcoef(draws, other)[0, 1]) < 0.013


@pytest.mark.parametrize("make", [compression, eden, quantize, top_k])
def test_small_arrays_and_the_weight_are_left_alone(make):
    message, link = said(), make()
    left = jax.jit(lambda m: link.up(m, m, KEY))(message)
    np.testing.assert_array_equal(left.arrays["update"]["bias"], message.arrays["update"]["bias"])
    assert float(left.arrays["weight"]) == 7
    assert left.meta == message.meta
    assert trees.nbytes(left) < trees.nbytes(message) / 2
    back = jax.jit(link.release)(link.init(message), left)
    assert jax.tree.structure(back) == jax.tree.structure(message)
    assert back.arrays["update"]["kernel"].shape == (200, 10)
    untouched = make(smallest=2001).up(message, message, KEY)
    jax.tree.map(np.testing.assert_array_equal, untouched, message)


@pytest.mark.parametrize("make", [compression, eden, quantize, top_k])
def test_a_single_number_is_never_in_a_code(make):
    """Else a coordinator could not hold a site's weight against its rows: `smallest` = 1 would let it count more."""
    message, link = said(), make(smallest=1)
    left = jax.eval_shape(lambda m: link.up(m, m, KEY), message)
    assert left.arrays["weight"].shape == ()
    assert isinstance(left.arrays["update"]["bias"], dict)


@pytest.mark.parametrize("code", [compression, eden, quantize, top_k])
def test_what_works_on_numbers_stands_before_a_code(code):
    chain([clip(norm=1.0), code()])
    with pytest.raises(Refusal, match=r"clip, ...\) stands behind one that puts them into a code.*name it first"):
        chain([code(), clip(norm=1.0)])


def test_no_message_is_put_into_the_same_code_twice():
    chain([quantize(bits=2, direction="up"), quantize(bits=8, direction="down")])
    for links, told in (
        ([quantize(), quantize(bits=2, direction="up")], "from the sites are put into the code quantize twice"),
        ([compression(), quantize(direction="down")], "to the sites are put into the code quantize twice"),
        ([eden(), eden(bits=1)], "to the sites are put into the code eden twice"),
        ([auto(), compression(direction="up")], "from the sites are put into the code kashin twice"),
    ):
        with pytest.raises(Refusal, match=told):
            chain(links)


@pytest.mark.parametrize("make", [compression, eden, quantize, top_k])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows_in_the_code(make, bad):
    message, link = said(), make()
    message.arrays["update"]["kernel"] = message.arrays["update"]["kernel"].at[3, 4].set(bad)
    left = jax.jit(lambda m: link.up(m, m, KEY))(message)
    assert not bool(trees.all_finite(left))


@pytest.mark.parametrize("make", [compression, eden, quantize, top_k])
def test_an_answer_of_zeros_stays_zero(make):
    message, link = trees.zeros(said()), make()
    left = jax.jit(lambda m: link.up(m, m, KEY))(message)
    # As it is coded, and as an empty site sends it: nothing but zeros, the seed too.
    for sent in (left, trees.zeros(left)):
        back = jax.jit(link.release)(link.init(message), sent)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(back))


@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: jnp.append(c, c[:1]), lambda c: c.astype(jnp.int32)])
def test_a_code_that_is_too_short_too_long_or_of_another_kind_is_refused(change):
    link = quantize(bits=3)
    left = link.up(said(), said(), KEY)
    node = left.arrays["update"]["kernel"]
    node["quantize/codes"] = change(node["quantize/codes"])
    with pytest.raises(Refusal, match="does not have the bytes of 2000 numbers"):
        link.release((), left)


def test_nobody_could_read_a_sum_of_codes():
    for link in (compression(), eden(), quantize(direction="up"), top_k()):
        with pytest.raises(Refusal, match="read one by one"):
            chain([link, secure_sum()])
    both = chain([compression(direction="down"), secure_sum()])
    assert both.sum_only
    assert not both.coded
    sent = both.down(both.init(said()), said(), KEY)
    assert trees.nbytes(sent) < trees.nbytes(said()) / 4
    assert both.receive(sent).arrays["update"]["kernel"].shape == (200, 10)


def test_a_chain_carries_what_its_links_carry():
    message = said()
    both = chain([clip(norm=1e9), top_k(fraction=0.1), quantize(bits=8, smallest=100)])
    assert both.coded
    carried = both.init_carried(message)
    assert [len(part) for part in carried] == [0, 1, 0]
    left, after = send_up(both, message, message, carried, KEY)
    # 200 of 2,000 entries left the site; 1,800 are still there.
    assert np.count_nonzero(after[1][0]) == 1800
    assert left.arrays["update"]["kernel"]["top_k/values"]["quantize/codes"].shape == (200,)
