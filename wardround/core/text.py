"""Text for people: numbers as they read them, and words of others that cannot harm a terminal, a log or a page."""

import json
import re
import unicodedata
from typing import Any

HIDDEN = ("Cc", "Cf", "Cs")
"""Unicode's categories of what must not be shown: control characters (a terminal obeys them: colours, links, the
clipboard), invisible marks (they reverse the text after them, or make two different names look alike), half
characters (no file takes them)."""
LONGEST = 1000
"""Characters of a sentence that another party may have shown."""
DEEPEST = 32
UNITS = ("bytes", "kB", "MB", "GB", "TB")


def format_bytes(count: float) -> str:
    """Decimal units, three digits.

    >>> format_bytes(999), format_bytes(12_345_678)
    ('999 bytes', '12.3 MB')
    """
    unit = 0
    # 999.5 kB would be written as "1e+03 kB"
    while count >= 999.5 and unit < len(UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.3g} {UNITS[unit]}" if count < 999.5 else f"{count:,.0f} {UNITS[unit]}"


def plain_line(text: object, longest: int | None = None) -> str:
    """One line without control characters, invisible marks and half characters; cut where it is too long.

    >>> plain_line("a\\x1b[31m b\\r\\n  c\\u202e"), plain_line("abcdef", 4)
    ('a[31m b c', 'abc…')
    """
    words = str(text)
    if longest is not None:
        words = words[: 8 * longest]  # nobody's megabytes are looked through for a line
    if not words.isprintable():  # what is printable has none of them
        words = "".join(one for one in words if one.isspace() or unicodedata.category(one) not in HIDDEN)
    line = " ".join(words.split())
    return line if longest is None or len(line) <= longest else line[: longest - 1].rstrip() + "…"


def has_hidden(value: Any, depth: int = 0) -> bool:
    """Whether some text in this JSON, keys too, holds what must not be shown; breaks of lines and tabs are allowed.

    >>> has_hidden({"name": ["two\\nlines"]}), has_hidden({"name": ["a\\u202eb"]})
    (False, True)
    """
    if isinstance(value, str):
        return any(unicodedata.category(one) in HIDDEN and one not in "\n\t" for one in value)
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return isinstance(value, list | tuple) and (depth >= DEEPEST or any(has_hidden(one, depth + 1) for one in value))


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def toml_key(name: str) -> str:
    """A name as it is written on the left side in a study file: in quotes unless it is letters, digits, _ and - only.

    >>> toml_key("age"), toml_key("Creatinine (mg/dL)")
    ('age', '"Creatinine (mg/dL)"')
    """
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def natural_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key by which numbers in names are compared as numbers.

    >>> sorted(["site-10", "site-2", "a"], key=natural_order)
    ['a', 'site-2', 'site-10']
    """
    parts = re.split(r"([0-9]{1,100})", name)
    return tuple((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts if part)
