"""Several transforms as one: down and up in the order given, receive and release in reverse."""

from collections.abc import Sequence
from functools import cache

import jax

from wardround.core.contracts import Key, Message, Transform, Tree


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
    """The transforms one after the other; a chain is `sum_only` when one of its links is."""
    links = tuple(transforms)
    if len(links) == 1:
        return links[0]

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

    def up(received: Message, answer: Message, key: Key) -> Message:
        for index, link in enumerate(links):
            answer = link.up(received, answer, jax.random.fold_in(key, index))
        return answer

    def release(state: Tree, message: Message) -> Message:
        for index in reversed(range(len(links))):
            message = links[index].release(state[index], message)
        return message

    return Transform(init, down, receive, up, release, any(link.sum_only for link in links))
