"""Where a model ages: in each window of time, how many patients there were, how many were expected to be ill, who was.

A site computes the predictions itself, with the model that it kept (`wardround.monitor.consortium.site_windows`): the
table that this query sees has a line a patient, with the window, the predicted risk and the outcome (1 or 0). Windows
are months, so nobody can ask for ever other edges around a patient. Counts are rounded down to multiples of
`smallest_cell`, the expected number as well, and a window with fewer patients is not named.
"""

from collections.abc import Sequence

import numpy as np

from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Query, Report, Site
from wardround.core.json_arrays import pack, unpack
from wardround.queries.cells import in_cells
from wardround.queries.values import numbers_of

WINDOW, PREDICTED, OUTCOME = "window", "predicted", "outcome"
COUNTS = ("patients", "expected", "observed")
TERMS = Terms(
    "for each of the last {most} months, how many patients the model was used for, how many it expected to have the"
    " outcome and how many had it; in multiples of {smallest_cell}, and nothing of a month with fewer patients",
    lambda of: (1 + len(COUNTS)) * of.settings["most"],
)


@recorded("query", TERMS)
def outcomes_by_window(*, most: Count = 36, smallest_cell: Count = 1) -> Query:
    """Patients, expected and observed outcomes of every site, month by month, in cells."""

    def ask(_: Message, site: Site) -> Message:
        risk, ill = numbers_of(site, (PREDICTED, OUTCOME)).T
        known = ~(np.isnan(risk) | np.isnan(ill))
        windows, place = np.unique(np.asarray(site.table[WINDOW], dtype=str)[known], return_inverse=True)
        sums = [np.bincount(place, weights=of, minlength=len(windows)) for of in (None, risk[known], ill[known])]
        told = np.flatnonzero(sums[0] >= smallest_cell)[-most:]
        arrays = {name: in_cells(one[told], smallest_cell) for name, one in zip(COUNTS, sums, strict=True)}
        if smallest_cell == 1:
            arrays["expected"] = sums[1][told]
        return Message({"site": pack(site.name), "windows": pack(windows[told].tolist()), **arrays})

    def combine(answers: Sequence[Message]) -> Report:
        return {
            "sites": {
                unpack(answer.arrays["site"]): {
                    "windows": unpack(answer.arrays["windows"]),
                    **{name: np.asarray(answer.arrays[name], np.float64).tolist() for name in COUNTS},
                }
                for answer in answers
            }
        }

    return Query(ask, combine)
