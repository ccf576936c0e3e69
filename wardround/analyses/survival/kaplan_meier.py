"""Kaplan-Meier and Nelson-Aalen curves of all sites' patients, by groups.

Kaplan and Meier, JASA 1958; Nelson 1972; Aalen 1978. Sites are asked twice: how long their follow-ups are, and how many
patients leave, with and without an event, in each interval of a common axis. Where the edges are the distinct times
(whole days, with as many intervals as days) the curve is that of all rows in one place; otherwise the exact curve is
enclosed, and how far it can be is told. No interval tells of fewer patients or events than the smallest cell. Under
[privacy] counts in declared intervals are noised instead (`private_curves`).
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.analyses.survival.counts import Counted, axis_words, count_rows, numbers_told, read_counts
from wardround.analyses.survival.curves import curve_findings
from wardround.analyses.survival.private_curves import noised_curves
from wardround.analyses.survival.rows import MOST_LEVELS, FollowUpOutcome, follow_up, levels_of
from wardround.analyses.survival.survey import (
    NUMBERS,
    Survey,
    check_times,
    edges_for,
    read_survey,
    survey_of,
    survey_words,
)
from wardround.analyses.survival.words import number
from wardround.core.analysis import Agreed, Analysis, kind_by_word
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Settings, Terms
from wardround.core.contracts import Message, Report, Site
from wardround.core.errors import Refusal

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


class CurveState(NamedTuple):
    """What is known so far."""

    agreed: Agreed
    groups: tuple[str, ...]
    survey: Survey | None = None
    edges: Values | None = None
    counted: Counted | None = None


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

    def begin(agreed: Agreed) -> CurveState:
        check_times(times, bins)
        return CurveState(agreed, levels_of(agreed, group) if group else ("all",))

    def message(state: CurveState) -> Message | None:
        if state.survey is None:
            return Message({}, (("asked", "survey"),))
        return Message({"edges": state.edges}, (("asked", "counts"),)) if state.counted is None else None

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        rows = follow_up(agreed, site, outcome, group=group)
        if dict(asked.meta)["asked"] == "survey":
            return Message(survey_of(rows, smallest_cell))
        groups = len(levels_of(agreed, group)) if group else 1
        edges = np.asarray(asked.arrays["edges"], np.float64)
        came = rows.entry if entry else None
        return Message(count_rows(rows.time, rows.event, rows.group, edges, groups, 1, smallest_cell, came))

    def step(state: CurveState, answers: Message) -> CurveState:
        if state.survey is None:
            survey = read_survey(answers.arrays, check_units=check_units)
            return state._replace(survey=survey, edges=edges_for(survey, times, bins, horizons))
        return state._replace(counted=read_counts(answers.arrays))

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
            most = number(100 * found.numbers["rounding"], 2)
            general.append(f"At their edges the curves are at most {most} percentage points from those of exact times.")
        numbers = {**found.numbers, "exact": state.counted.is_exact}
        return found._replace(words=[*found.words, *general], numbers=numbers).report()

    columns = tuple(dict.fromkeys(one for one in (time, event, entry, group) if one))
    kind = kind_by_word("asked", {"survey": 1, "counts": 1})
    return Analysis(columns, begin, message, ask, step, report, most=2, kind=kind)
