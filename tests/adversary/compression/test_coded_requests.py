"""A coordinator that lies about codes: marks of lines, transforms other than approved, and packed messages."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from tests.support.adversary.actors import LyingCoordinator
from tests.support.in_process import NAMES, Consortium, study_of
from wardround.core import trees
from wardround.core.contracts import Message
from wardround.deploy.protocol.replies import Reply
from wardround.deploy.protocol.status import Status

SITE, OTHER = "bo", "kenema"
EMPTY = np.zeros(0, np.float32)
TWO = [
    {"name": "quantize", "bits": 2, "direction": "up", "smallest": 8},
    {"name": "quantize", "bits": 16, "direction": "down", "smallest": 8},
]
LINED = {"name": "auto", "megabits": 1.0, "seconds": 1000.0, "smallest": 8, "lines": {SITE: 4e-6}}
"""At 4e-6 megabits a second 500 bytes take a thousand seconds."""


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return Consortium(tmp_path_factory.mktemp("codes"))


@pytest.fixture(scope="module")
def coded(consortium: Consortium) -> LyingCoordinator:
    """After an honest first round."""
    one = LyingCoordinator(consortium, study_of("two-codes", 3, transforms=TWO))
    one.conduct("round", 4)
    return one


@pytest.fixture(scope="module")
def lined(consortium: Consortium) -> LyingCoordinator:
    words = {"model": {"name": "mlp", "hidden": [16]}, "transforms": [LINED], "deploy": {"sites": list(NAMES)}}
    one = LyingCoordinator(consortium, study_of("lines", 3, **words))
    one.conduct("round", 4)
    return one


def is_refused(said: Reply, why: str) -> bool:
    """Refused with these words, and nothing came with it."""
    return said.status is Status.REFUSED and why in said.why and trees.nbytes(said.message) == 0


@pytest.mark.parametrize("order", [(1, 1), (1, 0), (0, 0), (0,), (0, 1, 1)])
def test_of_two_transforms_of_one_name_none_takes_the_others_place(coded: LyingCoordinator, order: Any) -> None:
    """Both stand in the study. Asked for the second twice, the site left its answer as it was, and not in two bits."""
    asked = coded.last(SITE, "round", round=1)
    said = coded.alter(asked, transforms=[asked.header["transforms"][one] for one in order], round=2)
    assert is_refused(said, "The approved study has the transforms ['quantize', 'quantize'], but others were requested")


def changed(message: Message, kind: str) -> Message:
    def touch(path: Any, leaf: Any) -> Any:
        name = str(path[-1].key)
        if name == "quantize/codes" and kind in ("short", "long", "other type"):
            return {"short": leaf[:-1], "long": np.concatenate([leaf, leaf]), "other type": leaf.astype(np.uint16)}[
                kind
            ]
        if name == "quantize/form" and kind == "claims to be larger":
            return np.zeros((0, 1 << 20, 1 << 10), np.float32)
        return leaf

    return Message(jax.tree_util.tree_map_with_path(touch, message.arrays))


@pytest.mark.parametrize("kind", ["short", "long", "other type", "claims to be larger"])
def test_a_packed_message_of_another_length_is_refused_before_it_is_unpacked(
    coded: LyingCoordinator, kind: str
) -> None:
    asked = coded.last(SITE, "round", round=1)
    assert is_refused(coded.alter(asked, changed(asked.message, kind), round=2), "does not have the arrays of the")


@pytest.mark.parametrize(("number", "value"), [(2, np.nan), (3, 9e19)])
def test_a_code_that_stands_for_no_numbers_is_answered_by_one_word(
    coded: LyingCoordinator, number: int, value: float
) -> None:
    """The same word whoever the patients are, and the round is used up."""
    asked = coded.last(SITE, "round", round=1)

    def touch(path: Any, leaf: Any) -> Any:
        name = str(path[-1].key)
        return np.full_like(leaf, {"quantize/step": value, "quantize/codes": 255}.get(name, leaf))

    said = coded.alter(asked, Message(jax.tree_util.tree_map_with_path(touch, asked.message.arrays)), round=number)
    assert (said.status, trees.nbytes(said.message)) == (Status.DIVERGED, 0)
    assert is_refused(coded.alter(asked, round=number), "there is one answer, and no second")


def without(arrays: dict[str, Any], mark: str) -> dict[str, Any]:
    return {name: one for name, one in arrays.items() if not name.startswith(mark)}


MARKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "another site's line": lambda arrays: {**without(arrays, "line/"), "line/0": EMPTY},
    "an unknown line": lambda arrays: {**without(arrays, "line/"), "line/7": EMPTY},
    "a line below 0": lambda arrays: {**without(arrays, "line/"), "line/-1": EMPTY},
    "a long number": lambda arrays: {**without(arrays, "line/"), f"line/{'9' * 4000}": EMPTY},
    "no number": lambda arrays: {**without(arrays, "line/"), "line/": EMPTY},
    "two lines": lambda arrays: {**arrays, "line/0": EMPTY},
    "no line": lambda arrays: without(arrays, "line/"),
    "a line with numbers": lambda arrays: {**arrays, "line/1": np.zeros(5, np.float32)},
    "another scheme": lambda arrays: {**without(arrays, "choice/"), "choice/none": EMPTY},
    "an unknown scheme": lambda arrays: {**without(arrays, "choice/"), "choice/zip": EMPTY},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MARKS)
def test_marks_other_than_the_sites_own_are_refused(lined: LyingCoordinator, kind: str) -> None:
    asked = lined.last(SITE, "round", round=1)
    assert {"line/1"} < set(asked.message.arrays)
    said = lined.alter(asked, Message(MARKS[kind](asked.message.arrays)), round=2)
    assert is_refused(said, "does not have the arrays of the approved algorithm")


@pytest.mark.slow
@pytest.mark.parametrize("lines", [[1.0] * 3, [0, 0, 0], [4e-6, 0, 0, 0], [], [1e9, 0, 0]])
def test_lines_other_than_approved_are_refused(lined: LyingCoordinator, lines: list[float]) -> None:
    """With the message of another site, too, which is that of such a line."""
    asked, other = (lined.last(site, "round", round=1) for site in (SITE, OTHER))
    (link,) = asked.header["transforms"]
    transforms = [{**link, "settings": {**link["settings"], "lines": lines}}]
    for message in (asked.message, other.message):
        assert is_refused(lined.alter(asked, message, transforms=transforms, round=2), "but others were requested")
    assert is_refused(lined.alter(asked, other.message, round=2), "does not have the arrays of the approved algorithm")


def test_marks_beside_transforms_that_have_none_are_refused(coded: LyingCoordinator) -> None:
    asked = coded.last(OTHER, "round", round=1)
    for mark in ("line/0", "choice/none"):
        said = coded.alter(asked, Message({**asked.message.arrays, mark: EMPTY}), round=2)
        assert is_refused(said, "does not have the arrays of the approved algorithm")
