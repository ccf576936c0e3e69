"""The first question of every survival analysis: how long the follow-ups are, how many events there are.

All of it is a sum over sites: a histogram of times on a grid that needs no agreement, and one of the sites' median
times, from which times in different units show without anyone knowing whose they are.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.analyses.survival.rows import FollowUp
from wardround.core.errors import Refusal
from wardround.core.text import counted
from wardround.queries.cells import in_cells
from wardround.statistics.survival.time_axis import (
    GRID,
    MOST_EDGES,
    SLOTS,
    crowded_edges,
    longest_told,
    round_edges,
    slots_of,
    time_counts,
)

Values = np.ndarray[Any, Any]
SUSPICIOUS, DIFFERENT = 8.0, 20.0
"""Times between the median follow-ups of two sites that are worth a word, and that are refused."""
NUMBERS = 2 * SLOTS + 6
"""How many numbers a site tells."""


class Survey(NamedTuple):
    """What all sites together answered."""

    patients: float
    events: float
    missing: float
    silent: float
    """Sites with fewer patients than a cell: they take no part."""
    event_time: float
    """The sum of the times of events, and of their squares."""
    event_square: float
    later: Values
    """How many are followed at least as long as each slot of the universal histogram."""
    medians: Values


def survey_of(rows: FollowUp, cell: int) -> dict[str, Values]:
    """What a site answers; with fewer patients than a cell nothing but that."""
    silent = 0 < len(rows.time) < cell
    time = rows.time[:0] if silent else rows.time
    event = rows.event[: len(time)]
    events = float(event.sum()) if event.sum() >= cell else 0.0
    moments = [float((event * time**power).sum()) if events else 0.0 for power in (1, 2)]
    told = (in_cells(len(time), cell), in_cells(events, cell), in_cells(rows.missing, cell), silent, *moments)
    arrays = {name: np.asarray(value, np.float64) for name, value in zip(Survey._fields, told, strict=False)}
    later = np.cumsum(time_counts(time)[::-1])[::-1]
    return {**arrays, "later": in_cells(later, cell).astype(np.float64), "medians": median_mark(time)}


def median_mark(time: Values) -> Values:
    """A 1 in the slot of the site's median time: from the sum over sites different units show, and nobody's."""
    medians = np.zeros(SLOTS)
    if len(time):
        medians[slots_of(np.median(time))] = 1
    return medians


def read_survey(arrays: dict[str, Values], *, check_units: bool) -> Survey:
    """What all answered, added up; refused where nothing can be computed from it."""
    patients, events, missing, silent, first, second = (float(arrays[name]) for name in Survey._fields[:-2])
    found = Survey(patients, events, missing, silent, first, second, arrays["later"], arrays["medians"])
    if found.patients <= 0:
        raise Refusal(
            "no site has patients of whom time, event and all columns are known",
            remedy="look at the columns that are missing, or lower the smallest cell",
        )
    if found.events <= 0:
        raise Refusal(
            f"all of {found.patients:.0f} patients are censored: nobody had the event",
            remedy="look at the event column: 1 is the event, unless event_is says another value",
        )
    if check_units:
        refuse_units(found.medians)
    return found


def refuse_units(medians: Values) -> None:
    if ratio_of(medians) >= DIFFERENT:
        raise Refusal(
            f"the median follow-up of one site is {ratio_of(medians):.0f} times that of another: days and months?",
            remedy="give all times in one unit; if they are meant so, check_units = false",
        )


def ratio_of(medians: Values) -> float:
    """The longest of the sites' median follow-ups in units of the shortest."""
    told = np.flatnonzero(medians[: len(GRID)])
    return float(GRID[told[-1]] / GRID[told[0]]) if len(told) else 1.0


def edges_for(survey: Survey, times: tuple[float, ...], bins: int, horizons: tuple[float, ...] = ()) -> Values:
    """The given edges, or at most so many round ones; and the horizons, at which a curve is to be read."""
    longest = longest_told(survey.later)
    edges = np.asarray(times, np.float64) if times else round_edges(longest, bins)
    return np.union1d(edges, [one for one in horizons if 0 <= one <= longest])


def fine_edges(survey: Survey, times: tuple[float, ...], bins: int, horizons: tuple[float, ...] = ()) -> Values:
    """As `edges_for`, but half of the edges stand where most patients leave, so that strong effects keep their size."""
    if times:
        return edges_for(survey, times, bins, horizons)
    half = max(bins // 2, 1)
    return np.union1d(edges_for(survey, (), half, horizons), crowded_edges(survey.later, half))


def check_times(times: tuple[float, ...], bins: int) -> None:
    """Edges that a study names: ascending, from 0 upwards."""
    if any(not np.isfinite(one) or one < 0 for one in times) or list(times) != sorted(set(times)):
        raise Refusal("times: the edges of the intervals must ascend, from 0 upwards", remedy="sort them")
    if max(len(times), bins) > MOST_EDGES:
        raise Refusal(f"{max(len(times), bins)} intervals are too many", remedy=f"take at most {MOST_EDGES}")


def survey_words(survey: Survey, sites: int, cell: int) -> list[str]:
    """Who was looked at, and what to look at twice."""
    least = "at least " if cell > 1 else ""
    where = counted(sites, "site")
    words = [f"Of {least}{survey.patients:.0f} patients at {where}, {least}{survey.events:.0f} had the event."]
    if survey.missing:
        words.append(f"{survey.missing:.0f} more were left out because something asked for is not known of them.")
    if survey.silent:
        words.append(f"Sites with fewer patients than the smallest cell, which took no part: {survey.silent:.0f}.")
    if ratio_of(survey.medians) >= SUSPICIOUS:
        words.append(
            f"The median follow-up of one site is {ratio_of(survey.medians):.0f} times that of another:"
            " check that all times are in one unit."
        )
    return words
