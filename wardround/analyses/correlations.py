"""Correlations of columns over all sites, as all rows in one place give them, with intervals and p-values.

Two exchanges: means, then products around them. Patients with all columns known are counted, so that the matrix is one
of the same patients. Spearman's would need ranks over all sites; use bins (`rank_test`) for those.
"""

from typing import Any

import numpy as np

from wardround.core.analysis import Agreed, Analysis, Findings, FoundTable
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.charts import heat
from wardround.statistics.comparison.means import correlation_interval
from wardround.statistics.disclosure.dominance import is_tellable
from wardround.statistics.selection.columns import check_columns
from wardround.statistics.selection.conditions import check_conditions, read_conditions
from wardround.statistics.selection.rows import complete_rows, covered_rows
from wardround.statistics.sentences import answered_text, figure, interval_text, listed, p_text

LABEL = "Correlations"
TERMS = Terms(
    "sums and products of {columns} around their means (cells of {smallest_cell})",
    lambda of: len(of.settings["columns"]) ** 2 + 2,
    times=2,
    rows="table",
)


@recorded("analysis", TERMS)
def correlations(*, columns: tuple[str, ...], only: str = "", smallest_cell: Count = 1) -> Analysis:
    """Pearson's correlations of columns over all sites, with Fisher's intervals; means and SDs beside."""
    conditions = read_conditions(only)

    def begin(agreed: Agreed) -> Tree:
        check_columns(agreed, columns, kind="number", where="[analysis] columns")
        check_conditions(conditions, agreed)
        if len(columns) < 2:
            raise Refusal("one column has no correlation", where="[analysis] columns", remedy="name two or more")
        return {"all": len(agreed.sites)}

    def message(state: Tree) -> Message | None:
        if "mean" not in state:
            return Message({"means": np.zeros(len(columns))})
        return None if "products" in state else Message({"around": state["mean"]})

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        x = complete_rows(agreed, site, numbers=columns, only=only, cell=smallest_cell).numbers
        told = is_tellable(x, smallest_cell, parameters=len(columns))
        x = x if told else x[:0]
        if "means" in asked.arrays:
            sites = np.array(float(told))
            return Message({"count": np.array(float(len(x))), "total": x.sum(axis=0), "sites": sites})
        away = x - asked.arrays["around"]
        return Message({"products": away.T @ away})

    def step(state: Tree, told: Message) -> Tree:
        if "mean" in state:
            return {**state, "products": np.asarray(told.arrays["products"])}
        count = float(told.arrays["count"])
        if count < 4:
            raise Refusal(
                f"{count:.0f} complete rows may be told about, and four are needed",
                remedy="name columns that more patients have, or lower smallest_cell where the sites allow it",
            )
        mean = told.arrays["total"] / count
        return {**state, "count": count, "mean": mean, "sites": int(told.arrays["sites"])}

    def report(state: Tree) -> Report:
        return told_of(state, columns, smallest_cell)

    wanted = tuple(dict.fromkeys((*columns, *(one.column for one in conditions))))
    return Analysis(
        wanted,
        begin,
        message,
        ask,
        step,
        report,
        most=2,
        covers=lambda agreed, site: [covered_rows(agreed, site, columns, only)],
    )


def told_of(state: Tree, columns: tuple[str, ...], cell: int) -> Report:
    products, count = state["products"], state["count"]
    squares = np.diag(products)
    constant = [name for name, one in zip(columns, squares, strict=True) if one <= 0]
    if constant:
        raise Refusal(f"the columns {listed(constant)} do not vary", remedy="leave them out")
    r = np.clip(products / np.sqrt(np.outer(squares, squares)), -1, 1)
    pairs = [(i, j) for i in range(len(columns)) for j in range(i)]
    rows: list[list[Any]] = [
        [columns[j], columns[i], float(r[i, j]), *correlation_interval(float(r[i, j]), count)] for i, j in pairs
    ]
    rows.sort(key=lambda row: -abs(float(row[2])))
    first, second, value, low, high, p = rows[0]
    ways = "rise together" if float(value) > 0 else "go opposite ways"
    words = [
        f"Of {len(columns)} columns over {count:.0f} patients, {first} and {second} are the most correlated: r ="
        f" {figure(float(value))} (95 % interval {interval_text(float(low), float(high))}, {p_text(float(p))}); they"
        f" {ways}."
    ]
    words += [text for text in (answered_text(state["sites"], state["all"], cell),) if text]
    sd = np.sqrt(squares / (count - 1))
    tables = [
        FoundTable("correlations", "Pearson's r with its 95 % interval.", ["", "", "r", "low", "high", "p"], rows),
        FoundTable(
            "columns",
            "Mean and standard deviation over all sites.",
            ["column", "mean", "SD"],
            [[name, float(m), float(s)] for name, m, s in zip(columns, state["mean"], sd, strict=True)],
        ),
    ]
    numbers = {"patients": count, "sites": state["sites"], "columns": list(columns), "r": r.tolist()}
    numbers |= {"mean": state["mean"].tolist(), "sd": sd.tolist()}
    return Findings(words, tables, [heat("r", "Correlations", columns, columns, r)], numbers).report()
