"""How findings are put into words: numbers, intervals, p-values, lists."""

import math
from collections.abc import Sequence


def figure(value: float | None, digits: int = 3) -> str:
    """So many significant digits, no exponent for what people measure.

    >>> figure(0.0123456), figure(1234.5678), figure(12.0), figure(None)
    ('0.0123', '1235', '12', 'not known')
    """
    if value is None or not math.isfinite(value):
        return "not known"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(places, 10)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def p_text(p: float | None) -> str:
    """
    >>> p_text(0.0312), p_text(0.00002), p_text(0.27)
    ('p = 0.031', 'p < 0.001', 'p = 0.27')
    """
    if p is None or not math.isfinite(p):
        return "p not known"
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def percent(share: float, digits: int = 0) -> str:
    """
    >>> percent(0.314)
    '31 %'
    """
    return f"{100 * share:.{digits}f} %"


def interval_text(low: float, high: float, digits: int = 3) -> str:
    """
    >>> interval_text(0.18, 0.461)
    '0.18 to 0.461'
    """
    return f"{figure(low, digits)} to {figure(high, digits)}"


def listed(words: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def named(column: str, level: str) -> str:
    """
    >>> named("sex", "male"), named("age", ""), named("treated", "yes"), named("died", "1")
    ('sex = male', 'age', 'treated', 'died')
    """
    return column if level in ("", "1", "yes", "true") else f"{column} = {level}"


def evidence(p: float, level: float = 0.05) -> str:
    """What a p-value says, without saying more.

    >>> evidence(0.2)
    'there is no clear evidence of a difference'
    """
    return "there is evidence of a difference" if p < level else "there is no clear evidence of a difference"


def answered_text(answered: int, sites: int, cell: int) -> str:
    """How many sites could be counted; empty where all of them were."""
    if answered == sites:
        return ""
    rule = (
        f"has fewer patients than it may tell about (cells of {cell}), or a column that few patients make up"
        if cell > 1
        else "has no complete row"
    )
    return f"{answered} of {sites} sites are counted: each of the others {rule}."
