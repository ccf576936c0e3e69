"""Several transforms as one: down and up in the order given, receive and release in reverse."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from wardround.core.contracts import OWED, Algorithm, Array, Key, Message, Tailoring, Transform, Tree
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
    tailorings = [link.tailoring for link in links if link.tailoring]
    if len(tailorings) > 1:
        raise Refusal(
            "two transforms choose by the sites' lines (auto with lines)",
            where="[[transforms]]",
            remedy="name it once",
        )
    if tailorings and any(link.init_carried for link in links):
        raise Refusal(
            "compression by the sites' lines (auto with lines) stands beside a transform that carries something from "
            "round to round (top_k)",
            where="[[transforms]]",
            remedy="leave one of the two out, or give auto one line for all sites",
        )
    refuse_unreadable_codes(links)
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
        codes=frozenset[str]().union(*(link.codes for link in links)),
        tailoring=tailorings[0] if tailorings else None,
        choices=tuple(
            chain([*links[:place], way, *links[place + 1 :]])
            for place, link in enumerate(links)
            for way in link.choices
        ),
        **carrying(links),
    )


def refuse_unreadable_codes(links: Sequence[Transform]) -> None:
    """Refuse what would work on an answer that is in a code already, and the same code twice."""
    plain, codes = identity().up, frozenset[str]()
    for place, link in enumerate(links):
        if any(one.coded for one in links[:place]) and link.up is not plain and not (link.coded or link.must_be_last):
            raise Refusal(
                "a transform that works on the numbers of an answer (clip, ...) stands behind one that puts them into "
                "a code (quantize, compression, eden, top_k, ...), and would spoil it",
                where="[[transforms]]",
                remedy="name it first",
            )
        if codes & link.codes:
            way, name = min(codes & link.codes).split(" ", 1)
            raise Refusal(
                f"messages {'to' if way == 'down' else 'from'} the sites are put into the code {name} twice "
                "(compression and auto use kashin, subsample and quantize)",
                where="[[transforms]]",
                remedy="name one of the two only, or give each a direction of its own",
            )
        codes |= link.codes


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


def tailored(algorithm: Algorithm, transform: Transform) -> Algorithm:
    """The algorithm whose messages differ from site to site as its own tailoring, and the transform's, want it."""
    own, other = algorithm.tailoring, transform.tailoring
    if other is None or algorithm.silent or algorithm.pools:
        return algorithm
    return algorithm._replace(tailoring=other if own is None else both_tailorings(own, other))


@lru_cache(maxsize=64)  # the same object for the same two, so that their programs are found again
def both_tailorings(first: Tailoring, second: Tailoring) -> Tailoring:
    """Cut by the first and then by the second; a kind is a kind of each."""

    def cut(said: Message, kind: int, site: Array, key: Key) -> Message:
        return second.cut(first.cut(said, kind // second.kinds, site, key), kind % second.kinds, site, key)

    def fit(said: Message, answer: Message, kind: int, site: Array, key: Key) -> Message:
        fitted = second.fit(said, answer, kind % second.kinds, site, key)
        return first.fit(said, fitted, kind // second.kinds, site, key)

    return Tailoring(
        first.kinds * second.kinds,
        lambda sites: first.kind_of(sites) * second.kinds + second.kind_of(sites),
        cut,
        fit,
    )


CHOICE, LINE = "choice/", "line/"
"""How arrays without entries begin that tell which of several ways a message took, and to what kind of line."""
UNCOMPRESSED = "none"
"""The way of a message that is left as it is."""


def marked(message: Message, mark: str, name: str) -> Message:
    """The message with a mark of no bytes."""
    return Message({**message.arrays, f"{mark}{name}": jnp.zeros(0, jnp.float32)}, message.meta)


def mark_of(message: Message, mark: str) -> str | None:
    """What a message was marked with, if it was."""
    return next((name.removeprefix(mark) for name in message.arrays if name.startswith(mark)), None)


def without_marks(message: Message) -> Message:
    return Message(
        {name: tree for name, tree in message.arrays.items() if not name.startswith((CHOICE, LINE))}, message.meta
    )


def choices_in(down: Message, up: Message) -> dict[str, str]:
    """Which ways the messages of a round took, where they tell it."""
    found = {"down": mark_of(down, CHOICE), "up": mark_of(up, CHOICE)}
    return {way: name for way, name in found.items() if name is not None}


class ChosenWay(NamedTuple):
    """What was chosen for some sites of a round; their names where they are not too many."""

    choices: Mapping[str, str]
    many: int
    sites: Sequence[str]


def choices_told(ways: Sequence[ChosenWay]) -> dict[str, Any]:
    """For a round's record: the one choice, or under "lines" every choice with the sites that it was made for."""
    groups: dict[tuple[tuple[str, str], ...], list[ChosenWay]] = {}
    for way in ways:
        groups.setdefault(tuple(way.choices.items()), []).append(way)
    if len(groups) < 2:
        return dict(next(iter(groups), ()))
    told = []
    for choices, own in sorted(groups.items()):
        count, names = sum(way.many for way in own), [site for way in own for site in way.sites]
        told.append({**dict(choices), "count": count, "sites": sorted(names) if len(names) == count else []})
    return {"lines": told}
