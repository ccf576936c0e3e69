"""A table of two categories over all sites, with chi-squared and, for 2 by 2, Fisher's exact test and odds ratio.

One exchange of counts. A site keeps back cells below its smallest cell, and others with them (see
`wardround.statistics.disclosure.counts`): what it tells is 0 or at least a cell, so the sum over sites is, too, and a
secure sum leaves no small cell to hide. How many patients were not counted is told. Under [privacy] all cells are told
with noise instead (`wardround.statistics.noised.contingency`).
"""

import numpy as np

from wardround.core.analysis import Agreed, Analysis, Findings, FoundTable
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Settings, Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.core.text import counted
from wardround.statistics.charts import bars
from wardround.statistics.comparison.categories import association
from wardround.statistics.disclosure.counts import tellable_rest, told_counts
from wardround.statistics.noised.contingency import noised_table
from wardround.statistics.selection.columns import check_levels
from wardround.statistics.selection.conditions import check_conditions, read_conditions
from wardround.statistics.selection.rows import complete_rows, covered_rows
from wardround.statistics.sentences import answered_text, evidence, figure, interval_text, p_text, percent

LABEL = "Cross-table"


def words_of(said: Settings) -> str:
    rest = ", with noise" if said.get("noised") else f", no count below {said['smallest_cell']}"
    return f"how many of your patients have each combination of {said['rows']} and {said['columns']}{rest}"


TERMS = Terms(
    words_of,
    lambda of: of.settings["most_levels"] ** 2 + 2,
    rows="table",
)


@recorded("analysis", TERMS)
def cross_table(
    *,
    rows: str,
    columns: str,
    only: str = "",
    most_levels: Count = 20,
    smallest_cell: Count = 1,
    noised: bool = False,
) -> Analysis:
    """Counts of two categories together, chi-squared test, and Fisher's test with the odds ratio for 2 by 2."""
    if noised:
        return noised_table(rows=rows, columns=columns, only=only, most_levels=most_levels)
    conditions = read_conditions(only)

    def begin(agreed: Agreed) -> Tree:
        levels = [check_levels(agreed, name, most_levels, where="[analysis]") for name in (rows, columns)]
        if rows == columns:
            raise Refusal("rows and columns are the same column", where="[analysis]", remedy="name two columns")
        check_conditions(conditions, agreed)
        return {"levels": levels, "all": len(agreed.sites)}

    def message(state: Tree) -> Message | None:
        return None if "counts" in state else Message({"table": np.zeros([len(one) for one in state["levels"]])})

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        known = complete_rows(agreed, site, categories=(rows, columns), only=only, cell=smallest_cell)
        counts = np.zeros(asked.arrays["table"].shape)
        np.add.at(counts, (known.codes[rows], known.codes[columns]), 1.0)
        told = told_counts(counts, smallest_cell)
        rest = tellable_rest((counts - told).sum(), smallest_cell)
        return Message({"counts": told, "kept_back": rest, "sites": np.array(float(told.any()))})

    def step(state: Tree, told: Message) -> Tree:
        return {**state, **{key: np.asarray(told.arrays[key]) for key in ("counts", "kept_back", "sites")}}

    def report(state: Tree) -> Report:
        return told_of(state, rows, columns, smallest_cell)

    wanted = tuple(dict.fromkeys((rows, columns, *(one.column for one in conditions))))
    return Analysis(
        wanted,
        begin,
        message,
        ask,
        step,
        report,
        most=1,
        covers=lambda agreed, site: [covered_rows(agreed, site, (rows, columns), only)],
    )


def told_of(state: Tree, rows: str, columns: str, cell: int) -> Report:
    counts, (above, beside) = state["counts"], state["levels"]
    total = counts.sum()
    found = association(counts)
    if found is None:
        raise Refusal(
            f"the table of {rows} and {columns} has fewer than two rows or columns that may be told",
            remedy="merge rare categories, or lower smallest_cell where the sites allow it",
        )
    words = [
        f"{rows} and {columns} of {total:.0f} patients: {evidence(found.p).replace('a difference', 'an association')}"
        f" (chi-squared {figure(found.chi2)}, {counted(found.df, 'degree')} of freedom, {p_text(found.p)}; Cramér's V"
        f" {figure(found.cramer, 2)})."
    ]
    if found.odds_ratio is not None and found.low is not None and found.high is not None:
        added = " after 0.5 was added to every cell, since one is 0" if found.is_corrected else ""
        words.append(
            f"The odds of {columns} = {beside[1]} are {figure(found.odds_ratio)} times as high with {rows} ="
            f" {above[1]} as with {above[0]} (95 % interval {interval_text(found.low, found.high)}{added}; Fisher's"
            f" exact test {p_text(found.fisher_p)})."
        )
    if found.smallest_expected < 5:
        words.append(
            f"The smallest expected count is {figure(found.smallest_expected, 2)}, below 5: chi-squared is rough."
        )
    if state["kept_back"]:
        words.append(
            f"{state['kept_back']:.0f} patients are not counted: at their site a cell below {cell}, or one from which"
            " it could be worked out, was kept back."
        )
    words += [text for text in (answered_text(int(state["sites"]), state["all"], cell),) if text]
    lines = [
        [level, *(int(count) for count in line), int(line.sum())] for level, line in zip(above, counts, strict=True)
    ]
    lines.append(["all", *(int(count) for count in counts.sum(axis=0)), int(total)])
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return Findings(
        words,
        [
            FoundTable("counts", f"Patients by {rows} and {columns}.", [rows, *beside, "all"], lines),
            FoundTable(
                "shares",
                f"Of each {rows}, how many have which {columns}.",
                [rows, *beside],
                [[level, *(percent(one, 1) for one in line)] for level, line in zip(above, shares, strict=True)],
            ),
        ],
        [
            bars(
                "shares",
                f"{columns} by {rows}",
                {level: (above, shares[:, place]) for place, level in enumerate(beside)},
                rows,
                "share",
            )
        ],
        {
            "rows": list(above),
            "columns": list(beside),
            "counts": counts.tolist(),
            "kept_back": float(state["kept_back"]),
            "sites": int(state["sites"]),
            **found._asdict(),
        },
    ).report()
