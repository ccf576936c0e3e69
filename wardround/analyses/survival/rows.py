"""A site's rows as survival analyses look at them: times, events, groups, strata and columns, known ones only.

Mistakes in them are refused where they are, at the site, and by its name; what is said tells of no patient. Under noise
not even that there is one may be told: such values are unknown there.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.core.analysis import Agreed
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.core.text import toml_key
from wardround.queries.columns import as_codes, as_numbers, suggest_name

Values = np.ndarray[Any, Any]
EVENT = {"1": 1.0, "0": 0.0, "True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
MOST_LEVELS = 20


class FollowUpOutcome(NamedTuple):
    """Which column tells the time, which the event, and by what value (none: 0 and 1, no and yes)."""

    time: str
    event: str
    event_is: str = ""
    causes: tuple[str, ...] = ()
    """Where several compete: the event is then 1 for the first of them, 2 for the second, ..."""
    setting: str = "event_is"
    """What a study calls that value."""
    entry: str = ""
    """Which column tells when a patient came under observation (left truncation)."""


class FollowUp(NamedTuple):
    """The patients of whom everything asked for is known, and how many others there are."""

    time: Values
    event: Values
    x: Values
    group: Values
    stratum: Values
    missing: int
    entry: Values
    """After which time a patient is at risk; -inf where all are from the beginning."""

    def where(self, rows: Values) -> "FollowUp":
        """Some of the rows."""
        parts = (self.time, self.event, self.x, self.group, self.stratum)
        time, event, x, group, stratum = (part[rows] for part in parts)
        return FollowUp(time, event, x, group, stratum, 0, self.entry[rows])

    def scaled(self, center: Values, scale: Values) -> "FollowUp":
        """With columns in units of their common spread."""
        return self._replace(x=(self.x - center) / scale)


def column_of(site: Site, name: str) -> "pd.Series[Any]":
    """A column of the site's table."""
    if name not in site.table.columns:
        remedy = suggest_name(name, [str(one) for one in site.table.columns])
        raise Refusal(f"the column '{name}' is missing", where=f"site {site.name}", remedy=remedy)
    return site.table[name]


def numbers_in(site: Site, name: str) -> Values:
    """A column of numbers, NaN where unknown."""
    try:
        return as_numbers(column_of(site, name))
    except (TypeError, ValueError):
        raise Refusal(
            f"the column '{name}' holds words where numbers are needed",
            where=f"site {site.name}",
            remedy="correct the words, or say with [data.cleaning] what they mean",
        ) from None


def times_of(site: Site, name: str, *, noised: bool = False) -> Values:
    """Follow-up times: numbers from 0 upwards."""
    times = numbers_in(site, name)
    if noised:
        return np.where((times >= 0) & np.isfinite(times), times, np.nan)
    if (times < 0).any():
        raise Refusal(
            f"the column '{name}' has negative times",
            where=f"site {site.name}",
            remedy="a follow-up ends after it begins: look for swapped dates, or codes for unknown such as -1",
        )
    if np.isinf(times).any():
        raise Refusal(f"the column '{name}' has infinite times", where=f"site {site.name}")
    return times


def entries_of(site: Site, outcome: FollowUpOutcome, time: Values) -> Values:
    """When each patient came under observation, which is before the follow-up ends."""
    if not outcome.entry:
        return np.full(len(time), -np.inf)
    entry = times_of(site, outcome.entry)
    if (entry >= time).any():
        raise Refusal(
            f"some patients enter ('{outcome.entry}') when their follow-up ('{outcome.time}') is over, or later",
            where=f"site {site.name}",
            remedy="both count from the same beginning, in the same unit; leave out who was never under observation",
        )
    return entry


def events_of(site: Site, outcome: FollowUpOutcome, *, noised: bool = False) -> Values:
    """1 for an event (or the number of its cause), 0 for a censored time, NaN where unknown."""
    codes, words = as_codes(column_of(site, outcome.event))
    if outcome.causes:
        meaning = {cause: number for number, cause in enumerate(outcome.causes, 1)}
        values = [float(meaning.get(str(word), 0)) for word in words]
    elif outcome.event_is:
        values = [float(word == outcome.event_is) for word in words]
    elif not noised and any(word not in EVENT for word in words):
        raise Refusal(
            f"the event column '{outcome.event}' does not hold 0 and 1",
            where=f"site {site.name}",
            remedy=f'say which value is the event: {outcome.setting} = "..."; all others count as censored',
        )
    else:
        values = [EVENT.get(str(word), np.nan) for word in words]
    return np.array([*values, np.nan])[codes]  # a code of -1 is unknown: the last


def codes_of(site: Site, name: str, levels: Sequence[str]) -> Values:
    """The number of each row's level; -1 where it is unknown, or no level that was agreed on."""
    place = {level: number for number, level in enumerate(levels)}
    codes, words = as_codes(column_of(site, name))
    return np.array([*(place.get(str(word), -1) for word in words), -1], np.int64)[codes]


def levels_of(agreed: Agreed, name: str) -> tuple[str, ...]:
    """The agreed levels of a category."""
    column = agreed.columns.get(name)
    if column is None:
        raise Refusal(f"no site has told what '{name}' is", remedy=suggest_name(name, agreed.columns))
    if column.kind != "category":
        raise Refusal(
            f"'{name}' holds numbers, where groups are needed",
            remedy=f'say that they are names of groups: [data.cleaning] kinds = {{{toml_key(name)} = "text"}}',
        )
    if len(column.levels) > MOST_LEVELS:
        raise Refusal(f"'{name}' has {len(column.levels)} levels", remedy=f"form at most {MOST_LEVELS} groups")
    return column.levels


def strata_of(agreed: Agreed, strata: Sequence[str]) -> int:
    """How many combinations of levels there are."""
    return int(np.prod([len(levels_of(agreed, name)) for name in strata])) if strata else 1


def follow_up(
    agreed: Agreed,
    site: Site,
    outcome: FollowUpOutcome,
    *,
    x: Values | None = None,
    group: str = "",
    strata: Sequence[str] = (),
    held_out: str = "",
    held: bool = False,
    noised: bool = False,
) -> FollowUp:
    """The site's patients, with the columns `x` of a model; what cannot be is refused, or where `noised` left out.

    With `held_out` ("COLUMN = VALUE") those without that value, or, if `held`, those with it.
    """
    time, event = times_of(site, outcome.time, noised=noised), events_of(site, outcome, noised=noised)
    x = np.empty((len(time), 0)) if x is None else x
    code = codes_of(site, group, levels_of(agreed, group)) if group else np.zeros(len(time), int)
    stratum, lost = np.zeros(len(time), int), code < 0
    for name in strata:
        levels = levels_of(agreed, name)
        own = codes_of(site, name, levels)
        stratum, lost = stratum * len(levels) + own, lost | (own < 0)
    asked = np.ones(len(time), bool)
    if held_out:
        column, _, value = (part.strip() for part in held_out.partition("="))
        asked = (codes_of(site, column, (value,)) == 0) == held
    entry = entries_of(site, outcome, time)
    lost = lost | np.isnan(entry) | np.isnan(time) | np.isnan(event) | np.isnan(x).any(axis=1)
    kept = asked & ~lost
    missing = int((asked & lost).sum())
    return FollowUp(time[kept], event[kept], x[kept], code[kept], stratum[kept], missing, entry[kept])
