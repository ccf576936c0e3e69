"""Kaplan-Meier and Nelson-Aalen curves of all sites' patients, by groups.

Kaplan and Meier, JASA 1958; Nelson 1972; Aalen 1978. Sites are asked twice: how long their follow-ups are, and how many
patients leave, with and without an event, in each interval of a common axis. Where the edges are the distinct times
(whole days, with as many intervals as days) the curve is that of all rows in one place; otherwise the exact curve is
enclosed, and how far it can be is told. No interval tells of fewer patients or events than the smallest cell. Under
[privacy] counts in declared intervals are noised instead (`private_curves`).
"""

from typing import Any

import numpy as np

from wardround.analyses.survival.counted_course import KIND, CountedCourse, CurveState
from wardround.analyses.survival.counts import axis_words, count_rows, numbers_told
from wardround.analyses.survival.curves import curve_findings
from wardround.analyses.survival.private_curves import noised_curves
from wardround.analyses.survival.rows import MOST_LEVELS, FollowUpOutcome, follow_up, levels_of
from wardround.analyses.survival.survey import NUMBERS, survey_of, survey_words
from wardround.core.analysis import Agreed, Analysis
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Settings, Terms
from wardround.core.contracts import Message, Report, Site
from wardround.core.errors import Refusal
from wardround.statistics.sentences import figure

LABEL = "Survival curves (Kaplan-Meier)"
Values = np.ndarray[Any, Any]


def size_of(of: Extent) -> int:
    groups = MOST_LEVELS if of.settings.get("group") else 1
    return NUMBERS + numbers_told(
        groups, max(len(of.settings["times"]), of.settings["bins"]) + 1, 2 if of.settings.get("entry") else 1
    )


def words_of(settings: Settings) -> str:
    never = f"never fewer than {settings['smallest_cell']} at once"
    by = f", by {settings['group']}," if settings["group"] else ""
    return (
        f"how many of your patients{by} leave follow-up in each interval of time,"
        f" with and without {settings['event']}"
        f"; {'with noise' if settings.get('noised') else never}"
    )


TERMS = Terms(words_of, size_of, times=2, rows="table")


@recorded("analysis", TERMS)
def kaplan_meier(
    *,
    time: str,
    event: str,
    event_is: str = "",
    group: str = "",
    horizons: tuple[float, ...] = (),
    times: tuple[float, ...] = (),
    bins: Count = 200,
    unit: str = "",
    check_units: bool = True,
    entry: str = "",
    smallest_cell: Count = 1,
    noised: bool = False,
) -> Analysis:
    """Survival curves by group, with intervals, medians and survival at horizons."""
    outcome = FollowUpOutcome(time, event, event_is, entry=entry)
    if noised:
        if entry:
            raise Refusal("curves under [privacy] have no entry times", where="[analysis] entry", remedy="leave it out")
        return noised_curves(outcome, group=group, horizons=horizons, times=times, unit=unit)
    course = CountedCourse(group, times, bins, horizons, check_units)

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        rows = follow_up(agreed, site, outcome, group=group)
        if dict(asked.meta)["asked"] == "survey":
            return Message(survey_of(rows, smallest_cell))
        groups = len(levels_of(agreed, group)) if group else 1
        edges = np.asarray(asked.arrays["edges"], np.float64)
        came = rows.entry if entry else None
        return Message(count_rows(rows.time, rows.event, rows.group, edges, groups, 1, smallest_cell, came))

    def report(state: CurveState) -> Report:
        assert state.survey is not None
        assert state.counted is not None
        assert state.edges is not None
        heads = [f"the patients with {group} {name}" if group else "all patients" for name in state.groups]
        tables = [state.counted.table(state.edges, place, smallest_cell) for place in range(len(state.groups))]
        found = curve_findings(state.groups, heads, tables, state.counted.withheld, state.edges, horizons, unit)
        general = survey_words(state.survey, len(state.agreed.sites), smallest_cell)
        general.append(axis_words(state.counted, state.edges, unit, smallest_cell))
        if found.numbers["rounding"] and smallest_cell == 1:
            most = figure(100 * found.numbers["rounding"], 2)
            general.append(f"At their edges the curves are at most {most} percentage points from those of exact times.")
        numbers = {**found.numbers, "exact": state.counted.is_exact}
        return found._replace(words=[*found.words, *general], numbers=numbers).report()

    columns = tuple(dict.fromkeys(one for one in (time, event, entry, group) if one))
    return Analysis(columns, course.begin, course.message, ask, course.step, report, most=2, kind=KIND)
