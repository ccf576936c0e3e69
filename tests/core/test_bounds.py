"""Ranges, at their ends and in words."""

import math
from typing import Any, get_args

import pytest

from wardround.core import bounds
from wardround.core.bounds import Bound

JUST = 1e-12


@pytest.mark.parametrize(
    ("kind", "inside", "outside"),
    [
        (bounds.Positive, [JUST, 1, math.inf], [0, -JUST, -math.inf]),
        (bounds.NotNegative, [0, JUST, math.inf], [-JUST]),
        (bounds.Share, [0, 0.5, 1], [-JUST, 1 + JUST]),
        (bounds.Half, [0, 0.5 - JUST], [-JUST, 0.5, 1]),
        (bounds.Momentum, [0, 1 - JUST], [-JUST, 1, 1.5]),
        (bounds.Count, [1, 2, 10**9], [0, -1]),
        (bounds.CountOrAll, [0, 1, 10**9], [-1]),
    ],
)
def test_the_ends_of_every_kind(kind: Any, inside: list[float], outside: list[float]) -> None:
    _, bound = get_args(kind)
    assert [value for value in inside if not bound.is_met(value)] == []
    assert [value for value in outside if bound.is_met(value)] == []
    assert not bound.is_met(math.nan)


def test_whole_numbers_are_whole() -> None:
    assert get_args(bounds.Count)[0] is get_args(bounds.CountOrAll)[0] is int
    assert get_args(bounds.Positive)[0] is float


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Bound(), ""),
        (Bound(low=0), "at least 0"),
        (Bound(low=0, open_low=True), "greater than 0"),
        (Bound(high=3), "at most 3"),
        (Bound(high=0.5, open_high=True), "less than 0.5"),
        (Bound(low=0, high=1), "at least 0 and at most 1"),
        (Bound(low=-1, high=1, open_low=True, open_high=True), "greater than -1 and less than 1"),
    ],
)
def test_words(bound: Bound, words: str) -> None:
    assert str(bound) == words


def test_no_bound_holds_everything_but_nan() -> None:
    assert all(Bound().is_met(value) for value in (-math.inf, 0, math.inf))
    assert not Bound().is_met(math.nan)
