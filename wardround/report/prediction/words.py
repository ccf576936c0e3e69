"""Why a patient was predicted so, in sentences: "age 81 raises it from 12 % to 19 %"."""

from collections.abc import Sequence
from typing import NamedTuple

from wardround.report.numbers import MINUS, score

MOST = 6
"""Columns that have a sentence of their own; the others share one."""


class Influence(NamedTuple):
    """One column of one patient; `before` and `after` are the prediction without and with it, largest first."""

    column: str
    value: str
    typical: str
    amount: float
    """The contribution, in log-odds, logits or units of the value."""
    before: float
    after: float


class ExplainedPatient(NamedTuple):
    """A prediction and all that led to it, from the typical patient on."""

    name: str
    what: str
    """What is predicted: "probability of yes", or a number's name."""
    share: bool
    """Whether it is a probability."""
    typical: float
    predicted: float
    influences: tuple[Influence, ...]
    remarks: tuple[str, ...] = ()


def explanation_lines(patient: ExplainedPatient) -> list[str]:
    """The prediction in a sentence, then the columns that moved it most."""
    now, usual = shown_pair(patient.predicted, patient.typical, share=patient.share)
    lines = [f"{patient.name}: {patient.what} {now} (a typical patient's: {usual})."]
    moving = [one for one in patient.influences if moves(one, share=patient.share)]
    lines += [influence_sentence(one, share=patient.share) for one in moving[:MOST]]
    if rest := moving[MOST:]:
        lines.append(rest_sentence(rest, share=patient.share))
    if not moving:
        lines.append("Nothing moves it: all that counts is as for a typical patient.")
    return [*lines, *patient.remarks]


def influence_sentence(one: Influence, *, share: bool) -> str:
    """
    >>> influence_sentence(Influence("age", "81", "60", 0.6, 0.12, 0.19), share=True)
    'age 81 (typical: 60) raises it from 12 % to 19 %.'
    """
    before, after = shown_pair(one.before, one.after, share=share)
    return f"{naming(one)} {'raises' if one.after > one.before else 'lowers'} it from {before} to {after}."


def rest_sentence(rest: Sequence[Influence], *, share: bool) -> str:
    before, after = shown_pair(rest[0].before, rest[-1].after, share=share)
    what = "1 other column" if len(rest) == 1 else f"{len(rest)} other columns together"
    verb = "change" if len(rest) > 1 else "changes"
    return f"{what} {verb} it from {before} to {after}."


def naming(one: Influence) -> str:
    """The column with the patient's value, and what is typical where that is another."""
    if not one.value:
        counted = f", counted as {one.typical}" if one.typical else ""
        return f"{one.column} (missing{counted})"
    same = one.value == one.typical or one.value.startswith(f"{one.typical} ")  # but for its unit
    beside = f" (typical: {one.typical})" if one.typical and not same else ""
    return f"{one.column} {one.value}{beside}"


def moves(one: Influence, *, share: bool) -> bool:
    """Whether a reader would see a difference."""
    before, after = shown_pair(one.before, one.after, share=share)
    return before != after


def shown_pair(first: float, second: float, *, share: bool) -> tuple[str, str]:
    """Two predictions with as many digits as tell them apart, up to a limit.

    >>> shown_pair(0.12, 0.19, share=True), shown_pair(0.121, 0.124, share=True), shown_pair(4.25, 5.1, share=False)
    (('12 %', '19 %'), ('12.1 %', '12.4 %'), ('4.250', '5.100'))
    """
    if not share:
        return score(first), score(second)
    pair = shown_share(first, 0), shown_share(second, 0)
    for digits in (1, 2):
        if pair[0] == pair[1]:
            pair = shown_share(first, digits), shown_share(second, digits)
    return pair


def shown_share(value: float, digits: int) -> str:
    """Nothing is certain: 0 and 100 % are said only of what is exactly that.

    >>> shown_share(0.9996, 0), shown_share(0.0001, 0), shown_share(0.125, 1), shown_share(1.0, 0)
    ('>99 %', '<1 %', '12.5 %', '100 %')
    """
    text = f"{100 * value:.{digits}f}"
    if float(text) >= 100 and value < 1:
        return f">{100 - 10**-digits:.{digits}f} %"
    if float(text) <= 0 and value > 0:
        return f"<{10**-digits:.{digits}f} %"
    return f"{text} %"


def signed_change(one: Influence, *, share: bool) -> str:
    """
    >>> signed_change(Influence("age", "81", "60", 0.6, 0.12, 0.19), share=True)
    '+7.0 points'
    """
    change = one.after - one.before
    sign = MINUS if change < 0 else "+"
    return f"{sign}{100 * abs(change):.1f} points" if share else f"{sign}{score(abs(change))}"
