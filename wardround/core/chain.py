"""Several transforms as one: down and up in the order given, receive and release in reverse."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from wardround.core.contracts import OWED, Key, Message, Transform, Tree
from wardround.core.errors import Refusal

Up = Callable[[Message, Message, Key], Message]


@cache
def identity() -> Transform:
    """Leaves messages as they are; always the same object, so that compiled programs are found again."""
    return Transform(
        init=lambda template: (),
        down=lambda state, message, key: message,
        receive=lambda message: message,
        up=lambda received, answer, key: answer,
        release=lambda state, message: message,
    )


def chain(transforms: Sequence[Transform]) -> Transform:
    """The transforms one after the other; of what hides single answers there may be one, at the end."""
    links = tuple(transforms)
    if any(link.must_be_last for link in links[:-1]):
        raise Refusal(
            "a transform that hides single answers (secure_sum, two_servers) is followed by another transform, which "
            "could not read the hidden answers",
            where="[[transforms]]",
            remedy="name it once, as the last of the transforms",
        )
    if links and links[-1].must_be_last and any(link.coded for link in links[:-1]):
        raise Refusal(
            "answers in a code that is read one by one (quantize, compression, eden, top_k, ...) are followed by a "
            "transform that hides single answers (secure_sum, two_servers), so nobody could read them",
            where="[[transforms]]",
            remedy='compress only what goes to the sites (direction = "down"), and give secure_sum few bits of its own '
            "(bits = 12); or leave one of the two out",
        )
    if any(link.init_carried for link in links) and any(link.at_site for link in links):
        raise Refusal(
            "a transform that carries something from round to round stands beside one that draws noise at the site",
            where="[[transforms]]",
            remedy="leave one of the two out",
        )
    if len(links) <= 1:
        return links[0] if links else identity()

    def init(template: Message) -> Tree:
        return tuple(link.init(template) for link in links)

    def down(state: Tree, message: Message, key: Key) -> Message:
        for index, link in enumerate(links):
            message = link.down(state[index], message, jax.random.fold_in(key, index))
        return message

    def receive(message: Message) -> Message:
        for link in reversed(links):
            message = link.receive(message)
        return message

    def in_turn(ups: Sequence[Up]) -> Up:
        def up(received: Message, answer: Message, key: Key) -> Message:
            # Noise that is owed is none of the business of those who work on the answer before the last.
            owed = {name: tree for name, tree in answer.arrays.items() if ups and name == OWED}
            answer = drop_array(answer, OWED) if owed else answer
            for index, act in enumerate(ups):
                if index == len(ups) - 1:
                    answer = Message({**answer.arrays, **owed}, answer.meta)
                answer = act(received, answer, jax.random.fold_in(key, index))
            return answer

        return up

    def release(state: Tree, message: Message) -> Message:
        for index in reversed(range(len(links))):
            message = links[index].release(state[index], message)
        return message

    whole = Transform(init, down, receive, in_turn([link.up for link in links]), release)
    last = links[-1]
    really = any(link.at_site for link in links)
    return whole._replace(
        sum_only=last.sum_only,
        products_only=last.products_only,
        fewest=max(link.fewest for link in links),
        most=min((link.most for link in links if link.most is not None), default=None),
        at_site=in_turn([link.at_site or link.up for link in links]) if really else None,
        bytes_up=last.bytes_up,
        limit=" and ".join(link.limit for link in links if link.limit),
        words=" ".join(link.words for link in links if link.words),
        coded=any(link.coded for link in links),
        **carrying(links),
    )


def carrying(links: Sequence[Transform]) -> dict[str, Any]:
    """How the links of a chain carry what they carry: each its own, side by side."""
    if not any(link.init_carried for link in links):
        return {}

    def init_carried(template: Message) -> Tree:
        found = []
        for index, link in enumerate(links):
            found.append(link.init_carried(template) if link.init_carried else ())
            act, key = link.up, jax.random.key(index)
            shapes = jax.eval_shape(lambda answer, act=act, key=key: act(Message({}), answer, key), template)
            template = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return tuple(found)

    def up_carried(received: Message, answer: Message, carried: Tree, key: Key) -> tuple[Message, Tree]:
        after = []
        for index, link in enumerate(links):
            answer, kept = send_up(link, received, answer, carried[index], jax.random.fold_in(key, index))
            after.append(kept)
        return answer, tuple(after)

    return {"init_carried": init_carried, "up_carried": up_carried}


def first_carried(transform: Transform, template: Message) -> Tree:
    """What a site carries before its first round."""
    return transform.init_carried(template) if transform.init_carried else ()


def send_up(
    transform: Transform, received: Message, answer: Message, carried: Tree, key: Key, *, really: bool = False
) -> tuple[Message, Tree]:
    """The answer as it leaves a site, and what the site carries on; `really` at a real one."""
    if transform.up_carried is not None:
        return transform.up_carried(received, answer, carried, key)
    act = transform.at_site if really and transform.at_site else transform.up
    return act(received, answer, key), carried


def drop_array(message: Message, name: str) -> Message:
    return Message({key: value for key, value in message.arrays.items() if key != name}, message.meta)


CHOICE = "choice/"
"""How an array without entries begins that tells which of several ways a message took."""


def marked_choice(message: Message, name: str) -> Message:
    """The message with a mark of no bytes that tells by which way it came."""
    return Message({**message.arrays, f"{CHOICE}{name}": jnp.zeros(0, jnp.float32)}, message.meta)


def chosen_marker(message: Message) -> tuple[str, Message]:
    """The way that a message tells, and the message without the mark."""
    (mark,) = (name for name in message.arrays if name.startswith(CHOICE))
    return mark.removeprefix(CHOICE), drop_array(message, mark)


def choices_in(down: Message, up: Message) -> dict[str, str]:
    """Which ways the messages of a round took, where they tell it."""
    found = {"down": down.arrays, "up": up.arrays}
    marks = {way: [name for name in arrays if name.startswith(CHOICE)] for way, arrays in found.items()}
    return {way: names[0].removeprefix(CHOICE) for way, names in marks.items() if names}
