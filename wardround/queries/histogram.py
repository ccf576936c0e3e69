"""Counts of values between edges that the message carries, by which a median is found without a row.

With a `smallest_cell` above 1, edges are moved to the site's own grid, so that none of them closes in on a patient.
"""

from collections.abc import Sequence

import numpy as np

from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Query, Report, Site
from wardround.queries.cells import BINS, in_cells
from wardround.queries.values import Matrix, ends_of, numbers_of, sorted_known, sum_over_sites

TERMS = Terms(
    "counts between edges around the median",
    lambda of: of.columns * (2 * (BINS + 1) + 1),  # for both middle values, and of all that are known
    times=5,
)
"""Five passes narrow the search for a median down; where answers are coarse, there is one (see `preparation_fit`)."""


@recorded("query", TERMS)
def histogram(*, columns: tuple[str, ...], smallest_cell: Count = 1) -> Query:
    """Counts below and between the edges that the message carries, shape (columns, ranks, edges), and of all."""

    def ask(message: Message, site: Site) -> Message:
        edges: Matrix = message.arrays["edges"]
        below = np.zeros(edges.shape, np.int64)
        known = np.zeros(len(edges), np.int64)
        for index, one in enumerate(sorted_known(numbers_of(site, columns))):
            ends = ends_of(one, smallest_cell)
            if ends is None:
                continue
            asked = edges[index]
            if smallest_cell > 1:
                asked = np.round(asked / ends.step) * ends.step if ends.step else asked
                # Beyond the ends lie fewer patients than a cell: there an edge would close in on the outermost.
                asked = np.clip(asked, ends.low, np.nextafter(ends.high, np.inf))
            below[index] = in_cells(np.searchsorted(one, asked, side="left"), smallest_cell)
            known[index] = in_cells(len(one), smallest_cell)
        return Message({"below": below[..., 0], "counts": np.diff(below, axis=-1), "known": known})

    def combine(answers: Sequence[Message]) -> Report:
        return {name: sum_over_sites(answers, name).tolist() for name in ("below", "counts", "known")}

    return Query(ask, combine)
