"""Who the patients of a study over real sites are, from what sites tell anyhow before the first round.

To agree on columns and on a preparation, sites tell how many rows they have and how many lack the outcome, and of
training patients the counts, means, ranges and categories of every column, all in whole cells and on grids. The table
of the patients is made of these answers: nothing more is asked for it. Under [privacy] there is none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wardround.core.components.recipes import recipe_of
from wardround.core.contracts import Message, Query, Report
from wardround.queries.cards import Card
from wardround.runs.clinical.patient_table import PatientCell, PatientColumn, PatientFlow, PatientTable, RowFlow
from wardround.runs.fields import part_of

MOST_LEVELS = 8
OTHER = "other"
QUARTILES = (0.25, 0.5, 0.75)
Rows = Mapping[str, tuple[int, int, int]]


@dataclass
class Cohort:
    """Listens to the answers of all sites together."""

    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What is known of each column."""

    def hear(self, query: Query, message: Message, report: Report) -> None:
        """Take up the report of one query; those that tell nothing of patients are passed over."""
        recipe = recipe_of(query)
        names: Sequence[str] = dict(recipe.settings).get("columns", ())
        for place, name in enumerate(names):
            known = self.columns.setdefault(name, {})
            if recipe.name == "moments":
                known |= {key: report[key][place] for key in ("count", "mean", "deviations", "missing")}
            elif recipe.name == "extremes":
                known["whole"] = bool(report["whole"][place])
            elif recipe.name == "category_counts" and not dict(recipe.settings).get("numbers"):
                known |= {"levels": report["counts"][name], "missing": report["missing"][place]}
            elif recipe.name == "histogram" and "quartiles" not in known:  # the first has the whole range
                edges = np.asarray(message.arrays["edges"])[place, 0]
                counts, below = report["counts"][place][0], report["below"][place][0]
                known["quartiles"] = quartiles_of(edges, counts, below, report["known"][place], known.get("whole"))

    def table(self, rows: Rows, cell: int) -> PatientTable:
        """Of the training patients of all sites; columns of which nothing was asked are not listed."""
        return PatientTable(
            smallest_cell=cell,
            rounded=True,
            patients=sum(one[0] for one in rows.values()),
            columns=tuple(column_of(name, known) for name, known in self.columns.items() if "missing" in known),
        )


def patient_fields(told: Report) -> dict[str, Any]:
    """The keys of a result, from what was stored with the sites' agreement."""
    if not told:
        return {}
    return {
        "flow": part_of(PatientFlow, told["flow"]),
        "patient_table": part_of(PatientTable, told["patient_table"]),
    }


def quartiles_of(
    edges: Any, counts: Sequence[int], below: int, known: int, whole: bool | None
) -> tuple[float, ...] | None:
    """Where a quarter, half and three quarters of the known values are reached, straight within a bin."""
    if known <= 0:
        return None
    reached = below + np.concatenate([[0], np.cumsum(counts)])
    # Counts are rounded down site by site, so that those between the edges may fall short of all that are known.
    total = min(known, int(reached[-1])) or known
    found = np.interp(np.multiply(QUARTILES, total), reached, edges)
    return tuple(float(one) for one in (np.round(found) if whole else found))


def column_of(name: str, known: Mapping[str, Any]) -> PatientColumn:
    missing = int(known["missing"])
    if "levels" in known:
        levels = sorted(known["levels"], key=lambda level: (-int(known["levels"][level]), level))
        kept = levels if len(levels) <= MOST_LEVELS else levels[: MOST_LEVELS - 1]
        counts = [int(known["levels"][level]) for level in kept]
        further = len(levels) - len(kept)
        more: dict[str, Any] = {"further_levels": further} if further else {}
        rest = [sum(int(known["levels"][level]) for level in levels[len(kept) :])] if further else []
        return PatientColumn(
            name=name,
            kind="text",
            levels=(*kept, *([OTHER] if further else [])),
            **more,
            all=PatientCell(missing=missing, counts=(*counts, *rest)),
        )
    count = float(known["count"])
    spread: dict[str, Any] = {}
    if count > 0 and known.get("quartiles"):
        spread = dict(zip(("low", "median", "high"), known["quartiles"], strict=True))
    elif count > 0:
        spread = {"mean": float(known["mean"]), "sd": float(np.sqrt(max(0.0, known["deviations"] / count)))}
    return PatientColumn(name=name, kind="number", all=PatientCell(missing=missing, **spread))


def flow_of(told: Sequence[Card], rows: Rows) -> PatientFlow:
    """From rows read to rows used, each rounded down by its site; how many were left out does not follow from it."""
    flows = {
        card.site: RowFlow(read=card.rows, without_outcome=card.missing_target, used=sum(rows[card.site]))
        for card in told
        if card.site in rows
    }
    whole = RowFlow(
        read=sum(flow.read or 0 for flow in flows.values()),
        without_outcome=sum(flow.without_outcome or 0 for flow in flows.values()),
        used=sum(flow.used or 0 for flow in flows.values()),
    )
    return PatientFlow(all=whole, sites=flows)
