"""Numbers as people read them."""

import pytest

from wardround.core.text import format_bytes


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
