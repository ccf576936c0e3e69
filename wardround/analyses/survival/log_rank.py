"""Whether survival differs between groups: the log-rank test, and Fleming-Harrington's weights.

Mantel 1966; Peto and Peto 1972; Fleming and Harrington 1991. By default patients are compared within each site
(`by_site`): every site counts at its own exact times, and observed minus expected events and their covariance add up,
so the answer is the stratified test of all rows in one place. Otherwise all sites are compared on one axis of time, as
for Kaplan-Meier curves. Weights S(t-)^p (1 - S(t-))^q look at early (p > 0) or late (q > 0) differences.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.analyses.survival.rows import MOST_LEVELS, FollowUp, FollowUpOutcome, follow_up, levels_of, strata_of
from wardround.analyses.survival.survey import (
    NUMBERS,
    Survey,
    check_times,
    fine_edges,
    read_survey,
    survey_of,
    survey_words,
)
from wardround.analyses.survival.words import p_words
from wardround.core.analysis import Agreed, Analysis, Findings, FoundTable, kind_by_word
from wardround.core.bounds import Count, NotNegative
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Settings, Terms
from wardround.core.contracts import Message, Report, Site
from wardround.core.errors import Refusal
from wardround.queries.cells import in_cells
from wardround.statistics.sentences import figure
from wardround.statistics.survival.rank_tests import RankSums, rank_sums, rank_test, tied_counts
from wardround.statistics.survival.time_axis import blocks_of, intervals_of, off_edge, struck_within

LABEL = "Comparison of survival (log-rank)"
Values = np.ndarray[Any, Any]


def size_of(of: Extent) -> int:
    edges = 0 if of.settings["by_site"] else MOST_LEVELS * (max(len(of.settings["times"]), of.settings["bins"]) + 1)
    return NUMBERS + MOST_LEVELS * (MOST_LEVELS + 3) + 2 * MOST_LEVELS * edges + 2


def words_of(settings: Settings) -> str:
    when = "in all, not by time" if settings["by_site"] else "in each interval of time"
    return (
        f"observed and expected events of your patients by {settings['group']}, {when}; nothing of fewer than"
        f" {settings['smallest_cell']} patients or events"
    )


TERMS = Terms(words_of, size_of, times=2, rows="table")


class RankState(NamedTuple):
    """What is known so far."""

    agreed: Agreed
    survey: Survey | None = None
    edges: Values | None = None
    sums: RankSums | None = None
    exact: bool = True
    silent: int = 0


@recorded("analysis", TERMS)
def log_rank(
    *,
    time: str,
    event: str,
    group: str,
    event_is: str = "",
    strata: tuple[str, ...] = (),
    by_site: bool = True,
    p: NotNegative = 0.0,
    q: NotNegative = 0.0,
    times: tuple[float, ...] = (),
    bins: Count = 500,
    check_units: bool = True,
    smallest_cell: Count = 1,
) -> Analysis:
    """Log-rank test of two or more groups, stratified by site and other columns, with optional weights."""
    outcome = FollowUpOutcome(time, event, event_is)

    def begin(agreed: Agreed) -> RankState:
        check_times(times, bins)
        if len(levels_of(agreed, group)) < 2:
            raise Refusal(f"'{group}' has one group only: there is nothing to compare")
        strata_of(agreed, strata)
        return RankState(agreed)

    def message(state: RankState) -> Message | None:
        if state.survey is None:
            return Message({}, (("asked", "survey"),))
        if state.sums is not None:
            return None
        edges = {} if by_site else {"edges": state.edges}
        return Message(edges, (("asked", "sums" if by_site else "counts"),))

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        rows = follow_up(agreed, site, outcome, group=group, strata=strata)
        groups = len(levels_of(agreed, group))
        what = dict(asked.meta)["asked"]
        if what == "survey":
            return Message(survey_of(rows, smallest_cell))
        silent = 0 < len(rows.time) < smallest_cell or 0 < rows.event.sum() < smallest_cell
        if silent:
            rows = rows.where(np.zeros(len(rows.time), bool))
        told = {"silent": np.asarray(float(silent))}
        if what == "sums":
            return Message({**told, **site_sums(rows, groups, p, q, smallest_cell)})
        edges = np.asarray(asked.arrays["edges"], np.float64)
        return Message({**told, **site_counts(rows, groups, strata_of(agreed, strata), edges, smallest_cell)})

    def step(state: RankState, answers: Message) -> RankState:
        arrays = answers.arrays
        if state.survey is None:
            survey = read_survey(arrays, check_units=check_units)
            return state._replace(survey=survey, edges=fine_edges(survey, times, bins))
        silent = round(float(arrays["silent"]))
        if by_site:
            return state._replace(sums=RankSums(*(arrays[name] for name in RankSums._fields)), silent=silent)
        left = arrays["left"]
        at_risk = np.cumsum(left[..., ::-1], axis=-1)[..., ::-1][..., :-1]
        each = [rank_sums(d, n, p, q) for d, n in zip(arrays["events"], at_risk, strict=True)]
        added = RankSums(*(np.sum([getattr(one, name) for one in each], axis=0) for name in RankSums._fields))
        return state._replace(sums=added, exact=float(arrays["off"]) == 0, silent=silent)

    def report(state: RankState) -> Report:
        compared = (*(("site",) if by_site else ()), *strata)
        weights = f"Events are weighted by S^{p:g} (1 - S)^{q:g} (Fleming-Harrington)." if p or q else ""
        return rank_findings(state, group, compared, weights, smallest_cell).report()

    columns = tuple(dict.fromkeys((time, event, group, *strata)))
    kind = kind_by_word("asked", {"survey": 1, "sums" if by_site else "counts": 1})
    return Analysis(columns, begin, message, ask, step, report, most=2, kind=kind)


def rank_findings(state: RankState, group: str, compared: tuple[str, ...], weights: str, cell: int) -> Findings:
    """The verdict first, then who had how many events."""
    assert state.survey is not None
    assert state.sums is not None
    sums, groups = state.sums, levels_of(state.agreed, group)
    test = rank_test(sums.difference, sums.covariance)
    if test.statistic is None:
        verdict = f"The groups of {group} were never at risk together, so they cannot be compared."
    else:
        clear = "differs" if test.p_value is not None and test.p_value < 0.05 else "does not clearly differ"
        means = f"chi-square {figure(test.statistic)} on {test.freedom} degrees of freedom, {p_words(test.p_value)}"
        verdict = f"Survival {clear} between the groups of {group} ({means})."
    words = [verdict]
    ratio = sums.observed / np.where(sums.expected > 0, sums.expected, np.nan)
    words += [
        f"{group} {name}: {figure(float(seen))} events, where {figure(float(due))} were expected if all were alike."
        for name, seen, due in zip(groups, sums.observed, sums.expected, strict=True)
    ]
    words.append(
        f"Patients were compared within the same {' and '.join(compared)}."
        if compared
        else "Patients of all sites were compared with each other."
    )
    if weights:
        words.append(weights)
    if not state.exact:
        assert state.edges is not None
        words.append(f"Times were rounded up to the edges of {len(state.edges) - 1} intervals.")
    words += survey_words(state.survey, len(state.agreed.sites), cell)
    if state.silent:
        words.append(f"Sites with too few patients or events to tell of, which were left out: {state.silent}.")
    rows: list[list[str | float | int | None]] = [
        [name, float(seen), float(due), float(part) if np.isfinite(part) else None]
        for name, seen, due, part in zip(groups, sums.observed, sums.expected, ratio, strict=True)
    ]
    table = FoundTable("groups", "Observed and expected events", ["group", "observed", "expected", "ratio"], rows)
    numbers = {
        **{name: getattr(sums, name).tolist() for name in RankSums._fields},
        "statistic": test.statistic,
        "freedom": test.freedom,
        "p_value": test.p_value,
        "groups": list(groups),
        "exact": state.exact,
    }
    return Findings(words, [table], (), numbers)


def site_sums(rows: FollowUp, groups: int, p: float, q: float, cell: int) -> dict[str, Values]:
    """Observed, expected, difference and covariance, added up over the strata of one site at its own times."""
    total = RankSums(*(np.zeros(shape) for shape in (groups, groups, groups, (groups, groups))))
    for number_ in np.unique(rows.stratum):
        own = rows.where(rows.stratum == number_)
        found = rank_sums(*tied_counts(own.time, own.event, own.group, groups), p, q)
        total = RankSums(*(a + b for a, b in zip(total, found, strict=True)))
    return {**total._asdict(), "observed": in_cells(total.observed, cell)}


def site_counts(rows: FollowUp, groups: int, strata: int, edges: Values, cell: int) -> dict[str, Values]:
    """Events and leavers of shape (strata, groups, intervals), the leavers with one more: those beyond the axis."""
    size, off = len(edges), 0.0
    events, left = np.zeros((strata, groups, size)), np.zeros((strata, groups, size + 1))
    for one in range(strata):
        for two in range(groups):
            own = rows.where((rows.stratum == one) & (rows.group == two))
            place = intervals_of(own.time, edges)
            event = struck_within(own.event, place, size)
            blocks = blocks_of(place, event, cell, size)
            if not len(own.time) or blocks is None:
                continue
            told = blocks.told(np.column_stack([np.ones(len(own.time)), event]))
            left[one, two], events[one, two] = told[:, 0], told[:-1, 1]
            off += float(off_edge(own.time, edges).any() or blocks.widths(edges).any())
    return {"events": events, "left": left, "off": np.asarray(off)}
