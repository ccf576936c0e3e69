"""Where a model ages: in each window of time, how many patients there were, the risk predicted, how many were ill.

A site computes the predictions itself, with the model that it kept (`wardround.monitor.consortium.site_windows`): the
table that this query sees has a line a patient, with the window, the predicted risk and the outcome (1 or 0). Windows
are months, quarters or years of the calendar, so nobody can ask for ever other edges around a patient. Counts are
rounded down to multiples of `smallest_cell`, and a window with fewer patients is not named. The mean risk depends on a
model that others may have made, so it is told on a grid on which one patient makes at most half a step, up or down at
random by a secret of the site (the column `offset`; without it, to the nearest).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from wardround.core.bounds import Count
from wardround.core.codes.json_arrays import pack, unpack
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Query, Report, Site
from wardround.queries.cells import coarse_share, in_cells
from wardround.queries.values import numbers_of

WINDOW, PREDICTED, OUTCOME, OFFSET = "window", "predicted", "outcome", "offset"
FIGURES = ("patients", "risk", "observed")
ALL = "all"
"""The name of all windows that are told, taken together; it comes after any of them."""
TERMS = Terms(
    "for each {every}, at most the last {most}, and for these together: of how many patients the outcome is known and"
    " how many had it, in multiples of {smallest_cell}, and the mean risk that the model predicted for them, rounded;"
    " nothing of a {every} with fewer than {smallest_cell} patients",
    lambda of: 2 + (1 + len(FIGURES)) * (1 + of.settings["most"]),
    rows="table",
)


@recorded("query", TERMS)
def outcomes_by_window(
    *, every: Literal["month", "quarter", "year"] = "month", most: Count = 36, smallest_cell: Count = 1
) -> Query:
    """Patients, expected and observed outcomes of every site, window by window, in cells."""

    def ask(_: Message, site: Site) -> Message:
        risk, ill = numbers_of(site, (PREDICTED, OUTCOME)).T
        known = ~(np.isnan(risk) | np.isnan(ill))
        labels = np.asarray(site.table[WINDOW], dtype=str)[known]
        windows, first, place = np.unique(labels, return_index=True, return_inverse=True)
        sums = np.array(
            [np.bincount(place, weights=of, minlength=len(windows)) for of in (None, risk[known], ill[known])]
        )
        told = np.flatnonzero(sums[0] >= smallest_cell)[-most:]
        names, sums = windows[told].tolist(), sums[:, told]
        ways = np.asarray(site.table[OFFSET])[known][first][told] if OFFSET in site.table else np.full(len(told), 0.5)
        if len(told) > 1:
            names, sums = [*names, ALL], np.column_stack([sums, sums.sum(axis=1)])
            ways = np.append(ways, ways.sum() % 1 if OFFSET in site.table else 0.5)  # as secret and even as each
        patients, expected, observed = sums
        mean = expected / patients
        if smallest_cell > 1:
            each = zip(mean.tolist(), patients.tolist(), ways.tolist(), strict=True)
            mean = np.array([coarse_share(share, of, way) for share, of, way in each], np.float64)
        arrays = {
            "patients": in_cells(patients.astype(np.int64), smallest_cell),
            "risk": mean,
            "observed": in_cells(observed.astype(np.int64), smallest_cell),
        }
        cell = np.array(smallest_cell, np.int64)
        return Message({"site": pack(site.name), "cell": cell, "windows": pack(names), **arrays})

    def combine(answers: Sequence[Message]) -> Report:
        return {
            "sites": {
                unpack(answer.arrays["site"]): {
                    "cell": int(answer.arrays["cell"]),
                    "windows": unpack(answer.arrays["windows"]),
                    **{name: np.asarray(answer.arrays[name]).tolist() for name in FIGURES},
                }
                for answer in answers
            }
        }

    return Query(ask, combine)
