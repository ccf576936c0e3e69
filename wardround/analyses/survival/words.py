"""Survival findings in words that a clinician reads: shares, times, changes of a hazard."""

import math
from typing import NamedTuple

from wardround.statistics.sentences import figure

UNTOLD = "not reached"


class Unit(NamedTuple):
    """By how much a column is changed in a sentence: 10 years of age, or from no to yes."""

    step: float = 1.0
    words: str = ""


def whole(value: float) -> float | int:
    """A count as a whole number where it is one; blocks are spread over intervals, so that parts of a patient remain.

    >>> whole(3.0), whole(2.5)
    (3, 2.5)
    """
    return int(value) if float(value).is_integer() else float(value)


def percent(value: float) -> str:
    """
    >>> percent(0.4149), percent(0.0042)
    ('41 %', '0.4 %')
    """
    return f"{100 * value:.1f} %" if 0 < abs(value) < 0.0095 else f"{100 * value:.0f} %"


def p_words(p_value: float | None) -> str:
    """
    >>> p_words(0.0312), p_words(1e-9)
    ('p = 0.031', 'p < 0.001')
    """
    if p_value is None:
        return "no test possible"
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}" if p_value < 0.1 else f"p = {p_value:.2f}"


def of_time(time: float | None, unit: str) -> str:
    """
    >>> of_time(310.0, "days"), of_time(None, "days")
    ('310 days', 'not reached')
    """
    return UNTOLD if time is None else f"{figure(time, 4)} {unit}".strip()


def unit_of(said: str) -> Unit:
    """
    >>> unit_of("10 years"), unit_of("years")
    (Unit(step=10.0, words='10 years'), Unit(step=1.0, words='year'))
    """
    first, _, rest = said.partition(" ")
    try:
        step = float(first)
    except ValueError:
        return Unit(1.0, said.removesuffix("s"))
    return Unit(step, said if rest else "")


def readable_unit(spread: float) -> Unit:
    """A round step of about a standard deviation.

    >>> readable_unit(9.1), readable_unit(0.8), readable_unit(340.0)
    (Unit(step=10.0, words='10'), Unit(step=1.0, words='1'), Unit(step=500.0, words='500'))
    """
    if not spread > 0:
        return Unit(1.0, "1")
    power = 10.0 ** math.floor(math.log10(spread))
    step = min((power * factor for factor in (1, 2, 5, 10)), key=lambda one: abs(math.log(one / spread)))
    return Unit(step, figure(step))


def change_words(ratio: float, low: float, high: float) -> str:
    """What a hazard does, with its interval; an interval around no change is said in both directions.

    >>> change_words(1.31, 1.18, 1.46)
    'rises by 31 %, 95 % interval 18 to 46 %'
    >>> change_words(0.72, 0.6, 0.86)
    'falls by 28 %, 95 % interval 14 to 40 %'
    >>> change_words(2.95, 1.3, 6.8)
    'is 3 times as high, 95 % interval 1.3 to 6.8 times'
    >>> change_words(1.1, 0.9, 1.34)
    'rises by 10 %, 95 % interval from 10 % less to 34 % more: no clear effect'
    """
    verb, size = ("rises", ratio - 1) if ratio >= 1 else ("falls", 1 - ratio)
    crosses = low < 1 < high
    in_times = ratio >= 3 or (high >= 3 and not crosses)
    begin = f"is {figure(ratio, 2)} times as high" if in_times else f"{verb} by {percent(size)}"
    if crosses:
        above = f"{percent(high - 1)} more" if high < 3 else f"{figure(high, 2)} times as much"
        return f"{begin}, 95 % interval from {percent(1 - low)} less to {above}: no clear effect"
    if in_times:
        return f"{begin}, 95 % interval {figure(low, 2)} to {figure(high, 2)} times"
    ends = (low - 1, high - 1) if ratio >= 1 else (1 - high, 1 - low)
    return f"{begin}, 95 % interval {percent(ends[0]).removesuffix(' %')} to {percent(ends[1])}"


def effect_sentence(column: str, level: str, reference: str, unit: Unit, binary: bool, change: str) -> str:
    """A whole sentence.

    >>> effect_sentence("age", "", "", Unit(10.0, "10 years"), False, "rises by 31 %, 95 % interval 18 to 46 %")
    'Per 10 years of age the hazard rises by 31 %, 95 % interval 18 to 46 %.'
    """
    if level:
        return f"With {column} {level}, compared with {reference}, the hazard {change}."
    if binary:
        return f"With {column} (1 instead of 0) the hazard {change}."
    return f"Per {unit.words} of {column} the hazard {change}."
