"""Compression that follows from the line: none, or the gentlest scheme with which a message arrives in time.

You say the slowest site's line in megabits a second, as measured there, and how many seconds a message may take. Each
direction by itself takes the first of no compression, conservative, moderate and aggressive (see compression) with
which a message of the study's model is there within `seconds`. It depends on nothing but these two numbers and the
model's size, so it is the same in every round and at every site, and whoever approves the study can work it out. Round
records, status and report tell what was chosen. A study whose messages would be late even so is refused.
"""

import jax

from wardround.core import trees
from wardround.core.bounds import Positive
from wardround.core.chain import chosen_marker, identity, marked_choice
from wardround.core.contracts import Key, Message, Transform, Tree
from wardround.core.errors import Refusal
from wardround.transforms.codec import SMALLEST, Smallest
from wardround.transforms.compression import SCHEMES, compression

NOTHING = "none"


def auto(*, megabits: Positive = 10.0, seconds: Positive = 60.0, smallest: Smallest = SMALLEST) -> Transform:
    """Takes the gentlest compression with which messages arrive in time over the slowest line (megabits a second)."""
    ways = {NOTHING: identity()} | {name: compression(scheme=name, smallest=smallest) for name in reversed(SCHEMES)}
    most = megabits * 1e6 / 8 * seconds

    def choose(message: Message, way: str) -> str:
        size = 0
        for name, link in ways.items():
            size = bytes_of(link, message, way)
            if size <= most:
                return name
        raise Refusal(
            f"a message of {size:,} bytes, compressed as far as it goes, takes longer than {seconds:g} seconds over a "
            f"line of {megabits:g} megabits a second",
            where="[[transforms]] auto",
            remedy="give it more seconds, choose a smaller model, or leave the slowest site out",
        )

    def down(state: Tree, message: Message, key: Key) -> Message:
        name = choose(message, "down")
        return marked_choice(ways[name].down(ways[name].init(message), message, key), name)

    def up(received: Message, answer: Message, key: Key) -> Message:
        name = choose(answer, "up")
        return marked_choice(ways[name].up(received, answer, key), name)

    def receive(message: Message) -> Message:
        name, rest = chosen_marker(message)
        return ways[name].receive(rest)

    def release(state: Tree, message: Message) -> Message:
        name, rest = chosen_marker(message)
        return ways[name].release(ways[name].init(rest), rest)

    return identity()._replace(
        down=down,
        receive=receive,
        up=up,
        release=release,
        coded=True,
        words=f"Messages are compressed as little as possible (not at all, or by the scheme conservative, moderate or "
        f"aggressive), so that each takes {seconds:g} seconds at most over a line of {megabits:g} megabits a second.",
    )


def bytes_of(link: Transform, message: Message, way: str) -> int:
    """Of a message of this form, found out without computing it."""
    key = jax.random.key(0)

    def sent(one: Message) -> Message:
        return link.up(one, one, key) if way == "up" else link.down(link.init(one), one, key)

    return trees.nbytes(jax.eval_shape(sent, message))
