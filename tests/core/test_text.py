"""Numbers as people read them, and words of others as one plain line, whatever was in them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.core.text import HIDDEN, format_bytes, has_hidden, plain_line


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (999_900, "1 MB"),
        (26_214_400, "26.2 MB"),
        (5e15, "5,000 TB"),
    ],
)
def test_bytes_in_decimal_units(count: float, words: str) -> None:
    assert format_bytes(count) == words


HARM = {
    "colours": ("a\x1b[31mred\x1b[0m", "a[31mred[0m"),
    "screen cleared": ("\x1b[2J\x1b[Hgone", "[2J[Hgone"),
    "one byte escapes": ("a\x9b31mb\x9d52;c;x\x9c", "a31mb52;c;x"),
    "clipboard": ("\x1b]52;c;cm0gLXJm\x07", "]52;c;cm0gLXJm"),
    "link": ("\x1b]8;;http://evil\x07safe\x1b]8;;\x07", "]8;;http://evilsafe]8;;"),
    "line overwritten": ("denied\rapproved", "denied approved"),
    "line added": ("ok\n12:00:00 bo approved the study", "ok 12:00:00 bo approved the study"),
    "line added otherwise": ("a\u2028b\u2029c\x85d\x0be", "a b c d e"),
    "backspaces": ("no\x08\x08yes", "noyes"),
    "turned": ("a\u202e9.0\u202c b\u2066c\u2069", "a9.0 bc"),
    "turned otherwise": ("a\u200e\u200f\u061cb", "ab"),
    "invisible": ("an\u200bna\ufeff\u2060\u00ad\U000e0041", "anna"),
    "half a character": ("a\ud800b", "ab"),
    "nul": ("a\x00b\x7f", "ab"),
}


@pytest.mark.parametrize("name", HARM)
def test_what_a_terminal_would_obey_is_taken_away(name: str) -> None:
    given, expected = HARM[name]
    assert plain_line(given) == plain_line(expected) == expected
    assert has_hidden({"a": [given]}) == (name != "line added")


@given(st.text(st.characters(exclude_categories=())))
def test_a_line_is_one_line_that_can_be_written_and_stays_as_it_is(text: str) -> None:
    line = plain_line(text)
    assert line.encode().decode() == line
    assert line.splitlines() == ([line] if line else [])
    assert not any(unicodedata.category(one) in HIDDEN for one in line)
    assert plain_line(line) == line


@given(st.text(max_size=300), st.integers(1, 40))
def test_a_line_is_cut_where_it_is_too_long(text: str, longest: int) -> None:
    assert len(plain_line(text, longest)) <= longest


def test_a_very_long_line_is_cut_and_said_to_be() -> None:
    assert plain_line("x" * 10_000_000, 100) == "x" * 99 + "…"
    assert plain_line("x" * 100, 100) == "x" * 100


def test_other_scripts_stay_readable() -> None:
    for name in ("Côte d'Ivoire 医院", "مستشفى", "Ελλάδα", "하나"):
        assert plain_line(name) == name
        assert not has_hidden({name: [name]})


def test_what_is_nested_without_end_counts_as_hidden() -> None:
    deep: object = "x"
    for _ in range(200):
        deep = [deep]
    assert has_hidden(deep)
    assert not has_hidden({"a": {"b": [1, None, 2.5, True, "two\nlines\tand a tab"]}})
