"""Chains of transforms that do not commute, so that a wrong order gives a wrong number."""

import jax
import jax.numpy as jnp
import pytest

from wardround.core.chain import chain, identity
from wardround.core.contracts import OWED, Array, Key, Message, Transform, Tree
from wardround.core.errors import Refusal

KEY = jax.random.key(1)


def number(message: Message) -> float:
    return float(message.arrays["x"])


def said(value: float | Array) -> Message:
    return Message({"x": jnp.asarray(value, jnp.float32)})


def affine(factor: float, shift: float, *, sum_only: bool = False) -> Transform:
    """x -> factor x + shift on the way, and back on arrival; the shift is the server's state."""

    def there(state: Array | float, message: Message) -> Message:
        return said(message.arrays["x"] * factor + state)

    def back(state: Array | float, message: Message) -> Message:
        return said((message.arrays["x"] - state) / factor)

    return Transform(
        init=lambda template: jnp.float32(shift),
        down=lambda state, message, key: there(state, message),
        receive=lambda message: back(shift, message),
        up=lambda received, answer, key: there(shift, answer),
        release=back,
        sum_only=sum_only,
    )


def test_down_and_up_in_order_receive_and_release_in_reverse() -> None:
    both = chain([affine(2, 1), affine(10, 3)])
    state = both.init(said(0))
    assert [float(part) for part in state] == [1, 3]
    # 5 -> 2 * 5 + 1 = 11 -> 10 * 11 + 3 = 113; the other order would give 2 * 53 + 1 = 107.
    assert number(both.down(state, said(5), KEY)) == 113
    assert number(both.up(said(0), said(5), KEY)) == 113
    # 113 -> (113 - 3) / 10 = 11 -> (11 - 1) / 2 = 5; the wrong order would give (56 - 3) / 10.
    assert number(both.receive(said(113))) == 5
    assert number(both.release(state, said(113))) == 5


def test_release_uses_each_links_own_state() -> None:
    both = chain([affine(2, 1), affine(10, 3)])
    # With states 7 and 13 instead: (113 - 13) / 10 = 10, (10 - 7) / 2 = 1.5.
    assert number(both.release((jnp.float32(7), jnp.float32(13)), said(113))) == 1.5
    # 5 -> 2 * 5 + 7 = 17 -> 170 + 13.
    assert number(both.down((jnp.float32(7), jnp.float32(13)), said(5), KEY)) == 183


def test_every_link_sees_what_came_down() -> None:
    """`up` is given the message as received from the server, not the answer of the link before."""

    def up(received: Message, answer: Message, key: Key) -> Message:
        return said(answer.arrays["x"] + received.arrays["x"])

    echo = identity()._replace(up=up)
    # 1 + 100 + 100 + 100
    assert number(chain([echo, echo, echo]).up(said(100), said(1), KEY)) == 301


def test_links_draw_different_numbers() -> None:
    def noise(state: Tree, message: Message, key: Key) -> Message:
        return said(message.arrays["x"] + jax.random.normal(key))

    noisy = identity()._replace(down=noise, up=lambda received, answer, key: noise((), answer, key))
    two = chain([noisy, noisy])
    draws = [float(jax.random.normal(jax.random.fold_in(KEY, link))) for link in (0, 1)]
    assert draws[0] != draws[1]
    assert number(two.down(two.init(said(0)), said(0), KEY)) == pytest.approx(sum(draws), abs=1e-6)
    assert number(two.up(said(0), said(0), KEY)) == pytest.approx(sum(draws), abs=1e-6)


def test_what_hides_answers_comes_once_and_last() -> None:
    open_link, masked = affine(2, 1), affine(2, 1, sum_only=True)
    paired = open_link._replace(products_only=True)
    assert chain([open_link, masked]).sum_only
    assert chain([open_link, paired]).products_only
    assert not chain([open_link, open_link]).must_be_last
    assert not identity().must_be_last
    for links in ([masked, open_link], [masked, masked], [paired, masked], [open_link, masked, open_link]):
        with pytest.raises(Refusal, match="as the last of the transforms"):
            chain(links)


def test_a_chain_tells_of_its_links() -> None:
    few, wide = affine(2, 1)._replace(fewest=3, limit="ten"), affine(2, 1)._replace(bytes_up=lambda message: 7)
    both = chain([few, wide])
    assert (both.fewest, both.limit, both.bytes_up(said(1)), both.at_site) == (3, "ten", 7, None)
    # What the last link sends is what is on the wire.
    assert chain([wide, few]).bytes_up is None


def test_a_real_site_does_each_link_as_a_real_site_does_it() -> None:
    real = affine(2, 1)._replace(at_site=lambda received, answer, key: said(answer.arrays["x"] + 100))
    both = chain([affine(2, 1), real])
    # 5 -> 11 -> 23 in simulation, 11 + 100 at a site.
    assert number(both.up(said(0), said(5), KEY)) == 23
    assert number(both.at_site(said(0), said(5), KEY)) == 111


def test_noise_that_is_owed_reaches_the_last_link_untouched() -> None:
    seen: list[set[str]] = []

    def up(received: Message, answer: Message, key: Key) -> Message:
        seen.append(set(answer.arrays))
        return answer

    link = identity()._replace(up=up)
    owing = Message({"x": jnp.ones(()), OWED: jnp.float32(4)})
    left = chain([link, link, link]).up(said(0), owing, KEY)
    assert seen == [{"x"}, {"x"}, {"x", OWED}]
    assert float(left.arrays[OWED]) == 4
    assert OWED in chain([]).up(said(0), owing, KEY).arrays, "never lost where nobody adds it"


def test_chains_of_one_and_of_none() -> None:
    alone = affine(2, 1)
    assert chain([alone]) is alone
    for nothing in (chain([]), identity()):
        state = nothing.init(said(0))
        assert not jax.tree.leaves(state)
        assert number(nothing.down(state, said(5), KEY)) == number(nothing.receive(said(5))) == 5
        assert number(nothing.up(said(9), said(5), KEY)) == number(nothing.release(state, said(5))) == 5


def test_chains_nest() -> None:
    flat = chain([affine(2, 1), affine(10, 3), affine(3, 0)])
    nested = chain([chain([affine(2, 1), affine(10, 3)]), affine(3, 0)])
    assert number(nested.down(nested.init(said(0)), said(5), KEY)) == number(
        flat.down(flat.init(said(0)), said(5), KEY)
    )
    assert number(nested.release(nested.init(said(0)), said(339))) == 5
