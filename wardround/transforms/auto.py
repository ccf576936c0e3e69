"""Compression that follows from each site's line: none, or the gentlest scheme with which a message arrives in time.

`lines` are the sites' lines in megabits a second by name, as measured; `megabits` is the line of a site that is not
named. A coordinator of real sites adds the speeds that its sites' lines have shown (see docs/how-to/compress.md) before
it offers the study, so they are part of what is approved. For each line and direction the first of no compression,
conservative, moderate and aggressive (see compression) is taken with which a message of the study's model is there
within `seconds`. It depends on nothing but these numbers and the model's size, so it is the same in every round, and
whoever approves the study can work it out. Round records, status and report tell what was chosen for whom. A study
whose messages would be late even so is refused. Models that are sent to be judged, or used at the end, travel as they
are: on a thin line let [evaluation] `every` be large. Codes are read one by one: under a secure sum, which adds all
sites' answers on one grid, it is refused.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.bounds import BySite, Positive, refuse_more_sites
from wardround.core.chain import CHOICE, LINE, UNCOMPRESSED, identity, mark_of, marked, without_marks
from wardround.core.contracts import Key, Message, Tailoring, Transform, Tree
from wardround.core.errors import Refusal
from wardround.transforms.codec import SMALLEST, Smallest
from wardround.transforms.compression import SCHEMES, compression


def auto(
    *, megabits: Positive = 10.0, lines: BySite = (), seconds: Positive = 60.0, smallest: Smallest = SMALLEST
) -> Transform:
    """Takes the gentlest compression with which messages arrive in time over a site's line (megabits a second)."""
    ways = {UNCOMPRESSED: identity()} | {
        name: compression(scheme=name, smallest=smallest) for name in reversed(SCHEMES)
    }
    speeds = tuple(sorted({own or megabits for own in lines} or {megabits}, reverse=True))
    kinds = np.array([speeds.index(own or megabits) for own in lines], np.int64)

    def line_of(message: Message) -> int:
        """The kind of line that a message is for."""
        mark = mark_of(message, LINE)
        if mark is not None and mark not in map(str, range(len(speeds))):
            raise unknown_mark(f"the line {mark!r}", [str(number) for number in range(len(speeds))])
        return int(mark or 0)

    def way_of(message: Message) -> Transform:
        """The scheme in which a message came."""
        mark = mark_of(message, CHOICE)
        if mark is not None and mark not in ways:
            raise unknown_mark(f"the compression {mark!r}", list(ways))
        return ways[mark or UNCOMPRESSED]

    def choose(message: Message, way: str, kind: int) -> str:
        size = 0
        for name, link in ways.items():
            size = bytes_of(link, message, way)
            if size <= speeds[kind] * 1e6 / 8 * seconds:
                return name
        raise Refusal(
            f"a message of {size:,} bytes, compressed as far as it goes, takes longer than {seconds:g} seconds over a "
            f"line of {speeds[kind]:g} megabits a second",
            where="[[transforms]] auto",
            remedy="give it more seconds, choose a smaller model, or leave the slowest site out",
        )

    def send_down(name: str, message: Message, key: Key) -> Message:
        if mark_of(message, CHOICE) is not None:
            raise Refusal("auto is named twice", where="[[transforms]]", remedy="name it once")
        line, plain = mark_of(message, LINE), without_marks(message)
        sent = marked(ways[name].down(ways[name].init(plain), plain, key), CHOICE, name)
        return sent if line is None else marked(sent, LINE, line)

    def send_up(name: str, received: Message, answer: Message, key: Key) -> Message:
        return marked(ways[name].up(received, answer, key), CHOICE, name)

    def down(state: Tree, message: Message, key: Key) -> Message:
        return send_down(choose(without_marks(message), "down", line_of(message)), message, key)

    def up(received: Message, answer: Message, key: Key) -> Message:
        return send_up(choose(answer, "up", line_of(received)), received, answer, key)

    def always(name: str) -> Transform:
        return identity()._replace(
            down=lambda state, message, key: send_down(name, message, key),
            up=lambda received, answer, key: send_up(name, received, answer, key),
            coded=True,
            codes=ways[name].codes,
        )

    def receive(message: Message) -> Message:
        return way_of(message).receive(without_marks(message))

    def release(state: Tree, message: Message) -> Message:
        link, rest = way_of(message), without_marks(message)
        return link.release(link.init(rest), rest)

    def kind_of(sites: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        refuse_more_sites("lines", len(kinds), int(np.max(sites, initial=0)) + 1, "[[transforms]] auto")
        return kinds[sites]

    several = Tailoring(
        kinds=len(speeds),
        kind_of=kind_of,
        cut=lambda said, kind, site, key: marked(said, LINE, str(kind)),
        fit=lambda said, answer, kind, site, key: answer,
    )
    over = " or ".join(f"{speed:g}" for speed in speeds)
    return identity()._replace(
        down=down,
        receive=receive,
        up=up,
        release=release,
        coded=True,
        codes=frozenset[str]().union(*(link.codes for link in ways.values())),
        tailoring=several if len(speeds) > 1 else None,
        choices=tuple(map(always, ways)),
        words=f"Messages are compressed as little as possible (not at all, or by the scheme conservative, moderate or "
        f"aggressive), so that in training each takes {seconds:g} seconds at most over a line of {over} megabits a "
        "second"
        f"{', as each site has it' if len(speeds) > 1 else ''}.",
    )


def unknown_mark(what: str, known: list[str]) -> Refusal:
    return Refusal(
        f"a message is marked for {what[:80]}, and the study has {', '.join(known)}",
        where="[[transforms]] auto",
        remedy="compare the versions of wardround and the transforms on both sides",
    )


def bytes_of(link: Transform, message: Message, way: str) -> int:
    """Of a message of this form, found out without computing it, and once."""
    leaves, structure = jax.tree.flatten(message)
    return _traced_bytes(link, way, structure, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves))


@lru_cache(maxsize=256)
def _traced_bytes(link: Transform, way: str, structure: Any, shapes: tuple[Any, ...]) -> int:
    message, key = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*shape) for shape in shapes]), jax.random.key(0)

    def sent(one: Message) -> Message:
        return link.up(one, one, key) if way == "up" else link.down(link.init(one), one, key)

    with jax.disable_jit(False):  # else loops would be walked through step by step
        return trees.nbytes(jax.eval_shape(sent, message))
