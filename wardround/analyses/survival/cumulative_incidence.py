"""How often each of several competing causes has struck by a time: Aalen-Johansen's cumulative incidence, by groups.

Aalen and Johansen 1978. One minus Kaplan-Meier with the other causes as censored would count patients who died of
another cause as if they could still get the event; here all causes and the patients without any add up to one. Sites
count who leaves by which cause in each interval of a common axis, as for Kaplan-Meier curves, and are asked twice.
Groups are compared for each cause by Gray's test (`gray`).
"""

from typing import Any

import numpy as np

from wardround.analyses.survival.counted_course import KIND, CountedCourse, CurveState
from wardround.analyses.survival.counts import axis_words, count_rows, numbers_told
from wardround.analyses.survival.rows import MOST_LEVELS, FollowUpOutcome, follow_up, levels_of
from wardround.analyses.survival.survey import NUMBERS, survey_of, survey_words
from wardround.analyses.survival.words import of_time, p_words, percent
from wardround.core.analysis import Agreed, Analysis, Findings, FoundChart, FoundTable
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Settings, Terms
from wardround.core.contracts import Message, Report, Site
from wardround.core.errors import Refusal
from wardround.queries.columns import suggest_name
from wardround.statistics.survival.gray import gray_test
from wardround.statistics.survival.incidence import Incidence, incidence_of
from wardround.statistics.survival.life_table import at_time, log_log_interval

LABEL = "Cumulative incidence (competing risks)"
Values = np.ndarray[Any, Any]


def size_of(of: Extent) -> int:
    groups = MOST_LEVELS if of.settings.get("group") else 1
    edges = max(len(of.settings["times"]), of.settings["bins"]) + len(of.settings["horizons"]) + 1
    return NUMBERS + numbers_told(groups, edges, len(of.settings["causes"]))


def words_of(settings: Settings) -> str:
    by = f", by {settings['group']}," if settings["group"] else ""
    return (
        f"how many of your patients{by} leave follow-up in each interval of time,"
        f" and by which of {', '.join(settings['causes'])}"
        f"; never fewer than {settings['smallest_cell']} at once"
    )


TERMS = Terms(words_of, size_of, times=2, rows="table")


@recorded("analysis", TERMS)
def cumulative_incidence(
    *,
    time: str,
    event: str,
    causes: tuple[str, ...],
    group: str = "",
    gray: bool = True,
    horizons: tuple[float, ...] = (),
    times: tuple[float, ...] = (),
    bins: Count = 200,
    unit: str = "",
    check_units: bool = True,
    smallest_cell: Count = 1,
) -> Analysis:
    """Cumulative incidence of competing causes by group; `causes` are values of the event column, others censored."""
    course = CountedCourse(group, times, bins, horizons, check_units)

    def begin(agreed: Agreed) -> CurveState:
        refuse_causes(agreed, event, causes)
        return course.begin(agreed)

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        rows = follow_up(agreed, site, FollowUpOutcome(time, event, causes=causes), group=group)
        if dict(asked.meta)["asked"] == "survey":
            any_cause = (rows.event > 0).astype(np.float64)
            return Message(survey_of(rows._replace(event=any_cause), smallest_cell))
        groups = len(levels_of(agreed, group)) if group else 1
        edges = np.asarray(asked.arrays["edges"], np.float64)
        return Message(count_rows(rows.time, rows.event, rows.group, edges, groups, len(causes), smallest_cell))

    def report(state: CurveState) -> Report:
        assert state.survey is not None
        assert state.counted is not None
        assert state.edges is not None
        counted, edges = state.counted, state.edges
        tables = [counted.table(edges, place) for place in range(len(state.groups))]
        found = [incidence_of(counted.events[:, place], table.effective) for place, table in enumerate(tables)]
        words: list[str] = []
        rows: list[list[str | float | int | None]] = []
        ends = [one for one in horizons if one <= edges[-1]] or [float(edges[-1])]
        for name, one in zip(state.groups, found, strict=True):
            for number_, cause in enumerate(causes):
                for at in ends:
                    share, low, high = at_horizon(one, edges, number_, at)
                    head = f" of the patients with {group} {name}" if group else " of the patients"
                    interval = f"95 % interval {percent(low).removesuffix(' %')} to {percent(high)}"
                    words.append(
                        f"By {of_time(at, unit)} {event} {cause} had struck {percent(share)}{head}, {interval}."
                    )
                    rows.append([name, cause, at, share, low, high])
        numbers: dict[str, Any] = {
            "edges": edges.tolist(),
            "exact": counted.is_exact,
            "groups": {name: numbers_of(one, causes) for name, one in zip(state.groups, found, strict=True)},
        }
        if gray and group:
            at_risk = np.stack([table.effective for table in tables])
            numbers["gray"] = {}
            for number_, cause in enumerate(causes):
                test = gray_test(counted.events[number_], counted.events.sum(axis=0), at_risk)
                numbers["gray"][cause] = test._asdict()
                clear = "differs" if test.p_value is not None and test.p_value < 0.05 else "does not clearly differ"
                how = f"Gray's test, {p_words(test.p_value)}"
                words.insert(number_, f"The incidence of {event} {cause} {clear} between the groups ({how}).")
        words += survey_words(state.survey, len(state.agreed.sites), smallest_cell)
        words.append(axis_words(counted, edges, unit, smallest_cell))
        columns = ["group", "cause", "time", "incidence", "low", "high"]
        series = [
            {
                "name": f"{name}, {cause}" if group else cause,
                "x": [0.0, *edges.tolist()],
                "y": [0.0, *one.incidence[number_].tolist()],
            }
            for name, one in zip(state.groups, found, strict=True)
            for number_, cause in enumerate(causes)
        ]
        axis = f"time in {unit}" if unit else "time"
        chart = FoundChart("incidence", "Cumulative incidence by cause", "steps", series, x=axis, y="share of patients")
        return Findings(
            words, [FoundTable("incidence", "Cumulative incidence", columns, rows)], [chart], numbers
        ).report()

    columns = tuple(dict.fromkeys(one for one in (time, event, group) if one))
    return Analysis(columns, begin, course.message, ask, course.step, report, most=2, kind=KIND)


def at_horizon(found: Incidence, edges: Values, cause: int, at: float) -> tuple[float, float, float]:
    """The incidence and its interval, on the log(-log) scale of those it has not struck."""
    spared, error = 1 - found.incidence[cause], found.error[cause]
    low, high = log_log_interval(spared, error, 0.95)
    share, lowest, highest = (1 - at_time(edges, one, at) for one in (spared, high, low))
    return share, lowest, highest


def numbers_of(found: Incidence, causes: tuple[str, ...]) -> dict[str, Any]:
    """What a program reads of one group."""
    each = {
        cause: {"incidence": found.incidence[place].tolist(), "error": found.error[place].tolist()}
        for place, cause in enumerate(causes)
    }
    return {"survival": found.survival.tolist(), "causes": each}


def refuse_causes(agreed: Agreed, event: str, causes: tuple[str, ...]) -> None:
    if not causes or len(set(causes)) != len(causes):
        raise Refusal("causes: each value of the event column that is an event must be named once")
    known = agreed.columns[event].levels if event in agreed.columns else ()
    unknown = [cause for cause in causes if known and cause not in known]
    if unknown:
        raise Refusal(
            f"no site has told of {event} = {unknown[0]}",
            where="[analysis] causes",
            remedy=f"{suggest_name(unknown[0], known)}; or leave it out",
        )
