"""Chains of transforms that do not commute, so that a wrong order gives a wrong number."""

import jax
import jax.numpy as jnp
import pytest

from wardround.core.chain import chain, identity
from wardround.core.contracts import Array, Key, Message, Transform, Tree

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


def test_one_sum_only_link_makes_the_chain_so() -> None:
    open_link, masked = affine(2, 1), affine(2, 1, sum_only=True)
    assert chain([open_link, masked]).sum_only
    assert chain([masked, open_link]).sum_only
    assert not chain([open_link, open_link]).sum_only
    assert not identity().sum_only


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
