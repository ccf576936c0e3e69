"""Mann and Whitney's rank test of two groups over all sites, from counts in shared bins.

The bins narrow down in a few exchanges to where the values lie; within a bin values are ties. What the binning could
change is told: between which bounds the chance that a patient of one group has the larger value lies whatever the order
within bins. With small cells protected, bins stay wide where patients are few (`wardround.statistics.disclosure.grid`).
"""

import numpy as np

from wardround.core.analysis import Agreed, Analysis, Findings, FoundTable
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.charts import histogram
from wardround.statistics.comparison.ranks import rank_sums
from wardround.statistics.disclosure.grid import POWERS, GridBins, leaf_counts, leaves_of, spread_counts, within_cells
from wardround.statistics.disclosure.value_range import DEPTH, first_bins, narrower_bins, told_powers
from wardround.statistics.selection.columns import check_columns, check_levels
from wardround.statistics.selection.conditions import check_conditions, read_conditions
from wardround.statistics.selection.rows import complete_rows, covered_rows
from wardround.statistics.sentences import answered_text, evidence, interval_text, p_text, percent

LABEL = "Rank test"
EXCHANGES = 10
TERMS = Terms(
    "how many patients of each group of {group} have {column} between edges of a fixed grid, no count below"
    " {smallest_cell}",
    lambda of: max(2 * of.settings["bins"] * (DEPTH + 1), 2 * POWERS) + 1,
    times=EXCHANGES,
    rows="table",
)


@recorded("analysis", TERMS)
def rank_test(*, column: str, group: str, bins: Count = 256, only: str = "", smallest_cell: Count = 1) -> Analysis:
    """Mann-Whitney test of a number in two groups, over shared bins, with the error of the bins told."""
    conditions = read_conditions(only)

    def begin(agreed: Agreed) -> Tree:
        check_columns(agreed, (column,), kind="number", where="[analysis] column")
        levels = check_levels(agreed, group, 2, where="[analysis] group")
        check_conditions(conditions, agreed)
        return {"levels": levels, "all": len(agreed.sites), "bins": None, "left": EXCHANGES - 1}

    def message(state: Tree) -> Message | None:
        if "counts" in state:
            return None
        if state["bins"] is None:
            return Message({"powers": np.zeros((2, POWERS))})
        return Message({"level": np.array(state["bins"].level), "first": np.array(state["bins"].first)})

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        rows = complete_rows(agreed, site, numbers=(column,), categories=(group,), only=only, cell=smallest_cell)
        codes = rows.codes[group]
        sizes = np.bincount(codes, minlength=2)
        few = ((sizes > 0) & (sizes < smallest_cell)).any()
        values = within_cells(rows.numbers[:0, 0] if few else rows.numbers[:, 0], smallest_cell)
        if "powers" in asked.arrays:
            return Message({"powers": told_powers(values), "sites": np.array(float(len(values) > 0))})
        own = GridBins(int(asked.arrays["level"]), int(asked.arrays["first"]), bins)
        return Message({"counts": leaf_counts(values, codes[: len(values)], 2, own, DEPTH, smallest_cell)})

    def step(state: Tree, told: Message) -> Tree:
        if state["bins"] is None:
            found = first_bins(np.asarray(told.arrays["powers"]), bins)
            if found is None:
                raise Refusal(
                    f"no site has enough patients with {column} and {group} to tell about",
                    remedy="lower smallest_cell where the sites allow it",
                )
            return {**state, "bins": found, "sites": int(told.arrays["sites"])}
        counts = np.asarray(told.arrays["counts"])
        finer = narrower_bins(counts, state["bins"]) if state["left"] > 1 else None
        if finer is not None:
            return {**state, "bins": finer, "left": state["left"] - 1}
        return {**state, "counts": counts}

    def report(state: Tree) -> Report:
        return told_of(state, column, group, smallest_cell)

    wanted = tuple(dict.fromkeys((column, group, *(one.column for one in conditions))))
    return Analysis(
        wanted,
        begin,
        message,
        ask,
        step,
        report,
        most=EXCHANGES,
        covers=lambda agreed, site: [covered_rows(agreed, site, (column, group), only)],
    )


def told_of(state: Tree, column: str, group: str, cell: int) -> Report:
    levels, bins = state["levels"], state["bins"]
    leaves = leaves_of(state["counts"], bins)
    spread = spread_counts(state["counts"], bins)
    sizes = spread.sum(axis=1).round()
    if (sizes == 0).any():
        raise Refusal(
            f"of {group} = {levels[int(np.argmin(sizes))]} nothing may be told, so there is nothing to compare",
            remedy="lower smallest_cell where the sites allow it",
        )
    known = np.array([leaf.counts for leaf in leaves]).T
    found = rank_sums(spread[0], spread[1], [(leaf.low, leaf.high) for leaf in leaves], (known[0], known[1]))
    words = [
        f"Of a patient with {group} = {levels[1]} and one with {levels[0]}, the former has the larger {column} in"
        f" {percent(found.chance, 1)} of pairs (ties count half): {evidence(found.p)} (Mann-Whitney"
        f" {p_text(found.p)}).",
        f"Values were compared in bins at least {bins.width:g} wide; whatever the order within bins, the share is"
        f" {interval_text(100 * found.lowest, 100 * found.highest)} %, and p between {found.p_least:.2g} and"
        f" {found.p_most:.2g}.",
    ]
    if found.p_least < 0.05 <= found.p_most:
        words.append(
            "These bins are too wide to be sure of the test: the order within them could turn it either way. Use more"
            " bins, or smaller cells where the sites allow it."
        )
    words += [text for text in (answered_text(state["sites"], state["all"], cell),) if text]
    table = FoundTable(
        "groups",
        f"{column} by {group}.",
        [group, "patients"],
        [[a, int(n)] for a, n in zip(levels, sizes, strict=True)],
    )
    shown = dict(zip(levels, spread, strict=True))
    chart = histogram("counts", f"{column} by {group}", bins.edges, shown, column)
    numbers = {"groups": list(levels), "patients": sizes.tolist(), "bin_width": bins.width, **found._asdict()}
    return Findings(words, [table], [chart], {**numbers, "sites": state["sites"]}).report()
