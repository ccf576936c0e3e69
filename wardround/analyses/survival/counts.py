"""The second question of curves: how many of a group leave, and by which event, in each interval of the common axis."""

from typing import Any, NamedTuple

import numpy as np

from wardround.statistics.sentences import figure
from wardround.statistics.survival.life_table import LifeTable, life_table
from wardround.statistics.survival.time_axis import blocks_of, intervals_of, off_edge, struck_within

Values = np.ndarray[Any, Any]


class Counted(NamedTuple):
    """Of all sites; axes are the group and the interval, for `events` the cause before them."""

    patients: Values
    events: Values
    left: Values
    off: float
    """Groups of sites with a time that is not an edge."""
    blur: float
    """Over how long a time all patients together are spread, since fewer than a cell left in their interval."""
    withheld: Values
    """Sites that tell nothing of a group, since it has fewer patients or events than a cell."""
    entered: Values | None = None
    """Who comes under observation in each interval, where a study has entry times."""

    def table(self, edges: Values, group: int, fewest: int = 1) -> LifeTable:
        """The life table of one group, whatever the cause, as long as so many of it are followed."""
        events, entered = self.events[:, group].sum(axis=0), None if self.entered is None else self.entered[group]
        whole = life_table(edges, events, self.left[group], float(self.patients[group]), self.is_exact, entered)
        # Where blocks are spread over time, the last of them ends with nobody left, and a curve at nothing.
        length = max(int((whole.at_risk >= fewest).sum()), 1) if fewest > 1 else len(edges)
        return LifeTable(
            whole.edges[:length],
            whole.at_risk[:length],
            whole.events[:length],
            whole.censored[:length],
            whole.exact,
            entered=None if entered is None else entered[:length],
        )

    @property
    def is_exact(self) -> bool:
        return self.off == 0 and self.blur == 0


def count_rows(
    time: Values,
    cause: Values,
    group: Values,
    edges: Values,
    groups: int,
    causes: int,
    cell: int,
    entry: Values | None = None,
) -> dict[str, Values]:
    """What a site answers; `cause` is 0 for the censored. Blocks hide who left (and entered) when: see `blocks_of`."""
    size = len(edges)
    patients, withheld, left = np.zeros(groups), np.zeros(groups), np.zeros((groups, size))
    events, entered = np.zeros((causes, groups, size)), np.zeros((groups, size))
    blur = off = 0.0
    place = intervals_of(time, edges)
    cause = struck_within(cause, place, size)
    for number_ in range(groups):
        own = group == number_
        if not own.any():
            continue
        flags = np.column_stack([np.ones(own.sum()), cause[own][:, None] == np.arange(1, causes + 1)])
        blocks = blocks_of(place[own], flags[:, 1:], cell, size)
        if blocks is None:
            withheld[number_] = 1
            continue
        patients[number_] = own.sum()
        told = blocks.told(flags)[:-1]
        left[number_], events[:, number_] = told[:, 0], told[:, 1:].T
        blur += float(blocks.widths(edges).sum())
        off += float(off_edge(time[own], edges).any())
        if entry is not None:
            came = intervals_of(entry[own], edges)
            coming = blocks_of(came, np.zeros((len(came), 0)), cell, size)
            assert coming is not None, "a cell of patients is there, and no event is counted"
            entered[number_] = coming.told(np.ones((len(came), 1)))[:-1, 0]
            blur += float(coming.widths(edges).sum()) if cell > 1 else 0.0
            off += float(off_edge(entry[own], edges).any())
    return {
        "patients": patients,
        "events": events,
        "left": left,
        "off": np.asarray(off),
        "blur": np.asarray(blur),
        "withheld": withheld,
        **({} if entry is None else {"entered": entered}),
    }


def read_counts(arrays: dict[str, Values]) -> Counted:
    """What all sites answered, added up."""
    return Counted(
        arrays["patients"],
        arrays["events"],
        arrays["left"],
        float(arrays["off"]),
        float(arrays["blur"]),
        arrays["withheld"],
        arrays.get("entered"),
    )


def numbers_told(groups: int, edges: int, causes: int = 1) -> int:
    """How many numbers a site tells."""
    return groups * (2 + edges * (1 + causes)) + 2


def axis_words(counted: Counted, edges: Values, unit: str, cell: int) -> str:
    """In which intervals was counted."""
    if counted.is_exact:
        return "Every time is the edge of an interval, so nothing is rounded."
    widths = np.unique(np.round(np.diff(edges), 9))
    each = f" of {figure(float(widths[0]))} {unit}".rstrip() if len(widths) == 1 else ""
    words = f"Times were counted in {max(len(edges) - 1, 1)} intervals{each}"
    if cell > 1:
        mean = counted.blur / max(float(counted.patients.sum()), 1.0)
        words += (
            f"; a site tells of at least {cell} patients and events at once, so that times are spread over"
            f" {figure(mean, 2)} {unit}".rstrip()
            + " on average"
        )
    return words + "."
