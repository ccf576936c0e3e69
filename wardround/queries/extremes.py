"""Where the values of number columns lie.

With `smallest_cell` = 1 these are the smallest and the largest value, which are values of single patients. Above, each
end has a cell of patients at or beyond it and is told on a grid (see `cells`).
"""

from collections.abc import Sequence

import numpy as np

from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Settings, Terms
from wardround.core.contracts import Message, Query, Report, Site
from wardround.queries.cells import Ends
from wardround.queries.values import ends_of, numbers_of, sorted_known


def describe_terms(settings: Settings) -> str:
    if settings["smallest_cell"] == 1:
        return "the smallest and largest value of each number, which are values of single patients"
    cell = settings["smallest_cell"]
    return f"between which values each number lies, rounded, with at least {cell} patients at either end"


TERMS = Terms(describe_terms, lambda of: 3 * of.columns)


@recorded("query", TERMS)
def extremes(*, columns: tuple[str, ...], smallest_cell: Count = 1) -> Query:
    """Where the values of each column lie, and whether they are whole; infinities where nothing is known."""

    def ask(_: Message, site: Site) -> Message:
        ordered = sorted_known(numbers_of(site, columns))
        nowhere = Ends(np.inf, -np.inf, 0.0)
        ends = [ends_of(one, smallest_cell) or nowhere for one in ordered]
        # As many broken values as make a cell; fewer are not told.
        whole = [np.count_nonzero(one % 1) < smallest_cell for one in ordered]
        low, high = (np.array([end[side] for end in ends], np.float64) for side in (0, 1))
        return Message({"low": low, "high": high, "whole": np.array(whole, bool) | np.isinf(low)})

    def combine(answers: Sequence[Message]) -> Report:
        return {
            "low": np.min([answer.arrays["low"] for answer in answers], axis=0).tolist(),
            "high": np.max([answer.arrays["high"] for answer in answers], axis=0).tolist(),
            "whole": np.all([answer.arrays["whole"] for answer in answers], axis=0).tolist(),
        }

    return Query(ask, combine)
