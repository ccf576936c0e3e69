"""Which columns each site records."""

from collections.abc import Sequence

import numpy as np

from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Query, Report, Site

TERMS = Terms(
    "which columns you record for at least {smallest_cell} patients",
    lambda of: len(of.settings["columns"]),
)


@recorded("query", TERMS)
def recorded_columns(*, columns: tuple[str, ...], smallest_cell: Count = 1) -> Query:
    """Which columns each site records; one known for fewer than `smallest_cell` patients counts as not recorded."""

    def ask(_: Message, site: Site) -> Message:
        table = site.table
        known = [int(table[name].notna().sum()) if name in table.columns else 0 for name in columns]
        return Message({"recorded": np.array([count >= max(1, smallest_cell) for count in known], np.uint8)})

    def combine(answers: Sequence[Message]) -> Report:
        rows = [np.asarray(answer.arrays["recorded"]).astype(bool).tolist() for answer in answers]
        return {"columns": list(columns), "recorded": rows}

    return Query(ask, combine)
