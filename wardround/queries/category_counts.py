"""How often each category occurs. One that fewer patients than `smallest_cell` have is not named."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from wardround.core.bounds import Count
from wardround.core.codes.json_arrays import pack, unpack
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Query, Report, Site
from wardround.core.errors import Refusal
from wardround.queries.cells import in_cells
from wardround.queries.columns import as_codes, as_numbers
from wardround.queries.values import sum_over_sites

TERMS = Terms("counts of categories", lambda of: of.columns * (of.settings["most"] + 1), times=2)
"""Once for words, and once for numbers where the most frequent one stands in for what is missing."""


@recorded("query", TERMS)
def category_counts(*, columns: tuple[str, ...], most: Count, numbers: bool = False, smallest_cell: Count = 1) -> Query:
    """How often each category of each column occurs (`numbers`: each number, flags as 0 and 1), and how often none.

    A column with more than `most` categories at a site is refused there, before anything leaves: it is an identifier,
    free text or a measurement, and its list of values would be rows. So is one with more over all sites.
    """

    def ask(_: Message, site: Site) -> Message:
        counts: dict[str, dict[str, int]] = {}
        missing = []
        for name in columns:
            column = site.table[name]
            where, labels = as_codes(pd.Series(as_numbers(column)) if numbers else column)
            times = np.bincount(where[where >= 0], minlength=len(labels))
            # Told in cells, too: else the refusals of ever other limits would tell the number of values exactly.
            if in_cells(len(labels), smallest_cell) > most:
                raise refusal(name, most, f"site {site.name}")
            pairs = zip(labels.tolist(), times.tolist(), strict=True)
            counts[name] = {
                label: in_cells(number, smallest_cell) for label, number in pairs if number >= smallest_cell
            }
            missing.append(in_cells(int((where < 0).sum()), smallest_cell))
        return Message({"counts": pack(counts), "missing": np.array(missing, np.int64)})

    def combine(answers: Sequence[Message]) -> Report:
        total: dict[str, dict[str, int]] = {name: {} for name in columns}
        for answer in answers:
            for name, counts in unpack(answer.arrays["counts"]).items():
                for label, number in counts.items():
                    total[name][label] = total[name].get(label, 0) + number
        for name, counts in total.items():
            if len(counts) > most:
                raise refusal(name, most, "all sites together")
        return {"counts": total, "missing": sum_over_sites(answers, "missing").tolist()}

    return Query(ask, combine)


def refusal(name: str, most: int, where: str) -> Refusal:
    return Refusal(
        f"column {name!r} has more than {most} different values, too many for categories",
        where=where,
        remedy="drop the column if it identifies patients or is free text, use another imputation if it is a"
        " measurement, or raise most_categories in [data.preparation] if these really are categories",
    )
