"""Survival curves under [privacy]: one exchange of noised counts in intervals that the study declares.

A patient leaves in one interval, with or without the event, or stays beyond the last: one more or less moves the counts
by 1. Intervals are declared, since those found from the patients would tell of them. Wide ones lose least: every count
has the same noise, and the curve ends where fewer are at risk than the noise can hide.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.analyses.survival.curves import curve_findings
from wardround.analyses.survival.rows import FollowUpOutcome, follow_up, levels_of
from wardround.analyses.survival.survey import check_times
from wardround.core.analysis import NOISE, Agreed, Analysis
from wardround.core.contracts import Message, Report, Site
from wardround.core.errors import Refusal
from wardround.statistics.sentences import figure
from wardround.statistics.survival.life_table import LifeTable
from wardround.statistics.survival.time_axis import intervals_of

Values = np.ndarray[Any, Any]
CLEAR = 4.0
"""Deviations of their noise that patients at risk must be."""


class NoisedCounts(NamedTuple):
    """(groups, intervals): who left with the event and without; (groups, 1): who stayed beyond."""

    groups: tuple[str, ...]
    events: Values | None = None
    censored: Values | None = None
    beyond: Values | None = None
    noise: float = 0.0


def noised_curves(
    outcome: FollowUpOutcome, *, group: str, horizons: tuple[float, ...], times: tuple[float, ...], unit: str
) -> Analysis:
    """Curves from counts between declared times, in one exchange that [privacy] noises."""
    if not times:
        raise Refusal(
            "under [privacy] the edges of the intervals must be declared: those found from patients tell of them",
            where="[analysis] times",
            remedy="say them, such as times = [90, 180, 365, 730]; few and wide intervals lose least to the noise",
        )
    check_times(times, 1)
    edges = np.asarray(times, np.float64)

    def begin(agreed: Agreed) -> NoisedCounts:
        return NoisedCounts(levels_of(agreed, group) if group else ("all",))

    def message(state: NoisedCounts) -> Message | None:
        return Message({}, (("asked", "counts"),)) if state.events is None else None

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        rows = follow_up(agreed, site, outcome, group=group, noised=True)
        shape = (len(levels_of(agreed, group)) if group else 1, len(edges) + 1)
        place = np.minimum(intervals_of(rows.time, edges), len(edges))
        told = np.zeros((2, *shape))
        np.add.at(told, ((rows.event <= 0).astype(int), rows.group, place), 1.0)
        beyond = told[:, :, -1:].sum(axis=0)
        return Message({"events": told[0, :, :-1], "censored": told[1, :, :-1], "beyond": beyond})

    def step(state: NoisedCounts, told: Message) -> NoisedCounts:
        events, censored, beyond = (np.asarray(told.arrays[name]) for name in ("events", "censored", "beyond"))
        return NoisedCounts(state.groups, events, censored, beyond, float(told.arrays.get(NOISE, 0.0)))

    def report(state: NoisedCounts) -> Report:
        tables = [noised_table_of(state, place, edges) for place in range(len(state.groups))]
        heads = [f"the patients with {group} {name}" if group else "all patients" for name in state.groups]
        nobody = np.zeros(len(state.groups))
        found = curve_findings(state.groups, heads, tables, nobody, edges, horizons, unit)
        counted = sum(float(table.at_risk[0]) for table in tables)
        general = [
            f"From about {counted:,.0f} patients, counted in {len(edges)} declared intervals; every count is right to"
            f" about {figure(1.959964 * state.noise, 2)} (95 % interval), and the intervals include that noise.",
        ]
        ended = [name for name, table in zip(state.groups, tables, strict=True) if len(table.edges) < len(edges)]
        if ended:
            general.append(f"Curves end where fewer are at risk than the noise could hide: {', '.join(ended)}.")
        return found._replace(words=[*found.words, *general], numbers={**found.numbers, "noise": state.noise}).report()

    columns = tuple(dict.fromkeys(one for one in (outcome.time, outcome.event, group) if one))
    return Analysis(columns, begin, message, ask, step, report, most=1, sensitivity=lambda agreed: 1.0)


def noised_table_of(state: NoisedCounts, place: int, edges: Values) -> LifeTable:
    """Of one group, as far as those at risk stand clear of the noise."""
    assert state.events is not None
    assert state.censored is not None
    assert state.beyond is not None
    events, censored, many = state.events[place], state.censored[place], len(edges)
    leaving = events + censored
    at_risk = np.cumsum(leaving[::-1])[::-1] + state.beyond[place, 0]
    clear = at_risk > np.maximum(CLEAR * state.noise * np.sqrt(2 * (many - np.arange(many)) + 1), 1.0)
    length = int(np.argmin(np.append(clear, False)))
    if not length:
        raise Refusal(
            f"the noise is larger than what the patients tell: too few have {state.groups[place]!r}",
            where="[privacy]",
            remedy="allow a larger epsilon, declare fewer times, merge groups, or let more sites take part",
        )
    return LifeTable(
        edges[:length], at_risk[:length], events[:length], censored[:length], exact=False, noise=state.noise, steps=many
    )
