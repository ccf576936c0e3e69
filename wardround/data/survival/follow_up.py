"""From a column of times and one of events to the outcome of a task of survival: a label for every patient.

The event column becomes the outcome, in words that say in which interval the event was or since when nothing is known
(see `intervals`). The column of times is set aside: no model sees it, and it is there to judge predictions by. Nothing
here asks another patient, so a simulation and a real site make the same labels of the same row.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.data.survival.intervals import (
    SurvivalOutcome,
    Values,
    interval_names,
    label_names,
    label_numbers,
    number_text,
)
from wardround.data.table import Table
from wardround.queries.columns import as_codes, as_numbers, kind_of, suggest_name

EVENT = {"1": 1.0, "0": 0.0, "True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}


def with_follow_up(table: Table, outcome: SurvivalOutcome, *, refuse: bool = True) -> Table:
    """The table with the event column as the outcome and the times set aside.

    A negative or infinite time, or an event that cannot be read, is refused with the site's name; without `refuse` it
    counts as unknown, and the number of unknown outcomes is all that is told.
    """
    sites = {
        name: labelled(frame, outcome, f"site {name}, {table.origin}", refuse=refuse)
        for name, frame in table.sites.items()
    }
    return declare_follow_up(replace(table, sites=sites), outcome)


def declare_follow_up(table: Table, outcome: SurvivalOutcome) -> Table:
    """What a study says about the outcome; the rows are left as they are."""
    if outcome.time in table.groups:
        raise Refusal(
            f"the column {outcome.time!r} holds times of follow-up, and cannot form groups",
            where="[data]",
            remedy="name other columns in groups",
        )
    return replace(
        table,
        target=outcome.event,
        task="survival",
        positive=interval_names(outcome.horizons)[0],  # the event, and the sooner
        horizons=outcome.horizons,
        time=outcome.time,
        aside=tuple(dict.fromkeys((*table.aside, outcome.time))),
        numbers=tuple(name for name in table.numbers if name != outcome.time),
    )


def labelled(frame: pd.DataFrame, outcome: SurvivalOutcome, where: str, *, refuse: bool) -> pd.DataFrame:
    """One site's rows: the event column holds labels then, and the times numbers."""
    for column in (outcome.time, outcome.event):
        if column not in frame.columns:
            known = [str(one) for one in frame.columns]
            raise Refusal(
                f"column {column!r} is missing; {suggest_name(column, known)}",
                where=where,
                remedy="correct time or event in [data]",
            )
    time = times_in(frame[outcome.time], where, refuse=refuse)
    event = events_in(frame[outcome.event], outcome, where, refuse=refuse)
    number = label_numbers(time, event, outcome.horizons)
    words = np.array([*label_names(outcome.horizons), None], dtype=object)[number]
    made: dict[str, Any] = {outcome.time: time, outcome.event: pd.Series(words, index=frame.index, dtype=object)}
    return frame.assign(**made)


def horizon_notes(times: Values, labels: Values, horizons: tuple[float, ...]) -> list[str]:
    """What a reader must know where nobody tells anything about a horizon; in no unit other than the table's."""
    notes = []
    for place, horizon in enumerate(horizons):
        if not (times >= horizon).any():
            notes.append(f"No patient was followed up to {number_text(horizon)}: what is predicted for it is a guess.")
        elif not (labels == place).any():
            since = f" after {number_text(horizons[place - 1])}" if place else ""
            notes.append(f"No patient had the event{since} by {number_text(horizon)}.")
    return notes


def times_in(column: "pd.Series[Any]", where: str, *, refuse: bool) -> Values:
    """Times of follow-up, NaN where unknown."""
    if kind_of(column) not in ("number", "flag", "empty"):
        if refuse:
            raise Refusal(
                f"the times of follow-up in column {column.name!r} are no numbers",
                where=where,
                remedy="say in [data.cleaning] how they are written, or count days between dates with days",
            )
        return np.full(len(column), np.nan)
    time = as_numbers(column)
    wrong = (time < 0) | np.isinf(time)
    if refuse and wrong.any():
        raise Refusal(
            f"the times of follow-up in column {column.name!r} are negative or infinite in {int(wrong.sum())} rows",
            where=where,
            remedy="a follow-up ends after it begins: look for swapped dates, or name codes for unknown such as -1 in"
            " [data.cleaning] missing",
        )
    return np.where(wrong, np.nan, time)


def events_in(column: "pd.Series[Any]", outcome: SurvivalOutcome, where: str, *, refuse: bool) -> Values:
    """1 for an event, 0 for a censored time, NaN where unknown."""
    codes, words = as_codes(column)
    if outcome.event_is:
        return np.array([*(float(str(word) == outcome.event_is) for word in words), np.nan])[codes]
    if refuse and any(str(word) not in EVENT for word in words):
        raise Refusal(
            f"the event column {column.name!r} does not hold 0 and 1",
            where=where,
            remedy='say in [data] which value is the event: event_is = "..."; all others then count as censored',
        )
    return np.array([*(EVENT.get(str(word), np.nan) for word in words), np.nan])[codes]
