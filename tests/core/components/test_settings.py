"""Values of study files in the types that a factory annotates, and types in words."""

from typing import Annotated, Any, Literal

import pytest

from wardround.core.bounds import Bound, Momentum
from wardround.core.components.settings import convert, type_text


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (3, float, (True, 3)),
        (3.5, int, (False, 3.5)),
        (None, int | None, (True, None)),
        ("x", int | str, (True, "x")),
        ([1, 2], tuple[int, ...], (True, (1, 2))),
        ((1, 2), list[int], (True, [1, 2])),
        ([0, 2], list[Annotated[int, Bound(low=1)]], (False, [0, 2])),
        ({"a": 1}, dict[str, int], (True, {"a": 1})),
        (3, Any, (True, 3)),
    ],
)
def test_conversion(value: Any, annotation: Any, expected: tuple[bool, Any]) -> None:
    assert convert(value, annotation) == expected


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (float, "a number"),
        (bool, "true or false"),
        (Momentum, "a number at least 0 and less than 1"),
        (int | None, "a whole number"),
        (str | None, "a text"),
        (tuple[str, ...], "a list of texts"),
        (Literal["a", "b"], "one of 'a', 'b'"),
    ],
)
def test_types_in_words(annotation: Any, words: str) -> None:
    assert type_text(annotation) == words
