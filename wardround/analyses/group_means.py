"""Means of a number in groups over all sites: t, Welch and analysis of variance, equal to the pooled rows'.

Two exchanges: counts and sums of the groups, then squared deviations from the common means. A site tells nothing of a
group that is smaller than its smallest cell or that few patients make up, nor of others from which it follows. Under
[privacy] one exchange of noised sums over the clipped column (`wardround.statistics.noised.group_sums`).
"""

import numpy as np

from wardround.core.analysis import Agreed, Analysis, Findings, FoundTable, kind_by_array
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Settings, Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.charts import forest
from wardround.statistics.comparison.means import two_means, variance_analysis, welch_analysis
from wardround.statistics.disclosure.counts import open_cells, tellable_rest
from wardround.statistics.disclosure.dominance import is_dominated
from wardround.statistics.noised.group_sums import noised_means
from wardround.statistics.selection.columns import check_columns, check_levels
from wardround.statistics.selection.conditions import check_conditions, read_conditions
from wardround.statistics.selection.rows import complete_rows, covered_rows
from wardround.statistics.sentences import answered_text, evidence, figure, interval_text, listed, p_text

LABEL = "Means of groups"


def words_of(said: Settings) -> str:
    rest = "with noise" if said.get("noised") else f"no group below {said['smallest_cell']} patients"
    return f"count, sum and squared deviations of {said['column']} in each group of {said['group']}, {rest}"


TERMS = Terms(
    words_of,
    lambda of: 3 * of.settings["most_levels"] + 2,
    times=2,
    rows="table",
)


@recorded("analysis", TERMS)
def group_means(
    *,
    column: str,
    group: str,
    only: str = "",
    ranges: tuple[str, ...] = (),
    most_levels: Count = 20,
    smallest_cell: Count = 1,
    noised: bool = False,
) -> Analysis:
    """Means of a number in groups, compared by t and Welch's test (two groups) or analysis of variance (more)."""
    if noised:
        return noised_means(column=column, group=group, ranges=ranges, only=only, most_levels=most_levels)
    conditions = read_conditions(only)

    def begin(agreed: Agreed) -> Tree:
        check_columns(agreed, (column,), kind="number", where="[analysis] column")
        levels = check_levels(agreed, group, most_levels, where="[analysis] group")
        check_conditions(conditions, agreed)
        return {"levels": levels, "all": len(agreed.sites)}

    def message(state: Tree) -> Message | None:
        if "mean" not in state:
            return Message({"groups": np.zeros(len(state["levels"]))})
        return None if "squares" in state else Message({"around": state["mean"]})

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        rows = complete_rows(agreed, site, numbers=(column,), categories=(group,), only=only, cell=smallest_cell)
        x, codes = rows.numbers[:, 0], rows.codes[group]
        amount = len(agreed.columns[group].levels)
        held = [x[codes == place] for place in range(amount)]
        counts = np.array([len(one) for one in held])
        # A group that few patients make up is treated as one below the cell, so that others are kept back with it.
        small = np.array([is_dominated(one, smallest_cell) for one in held])
        told = open_cells(np.where(small, np.minimum(counts, smallest_cell - 1), counts), smallest_cell) & ~small
        if "groups" in asked.arrays:
            return Message(
                {
                    "count": np.where(told, counts, 0.0),
                    "total": np.array([one.sum() if ok else 0.0 for one, ok in zip(held, told, strict=True)]),
                    "kept_back": tellable_rest(counts[~told].sum(), smallest_cell),
                    "sites": np.array(float((counts[told] > 0).any())),
                }
            )
        around = asked.arrays["around"]
        squares = [((one - mean) ** 2).sum() if ok else 0.0 for one, mean, ok in zip(held, around, told, strict=True)]
        return Message({"squares": np.array(squares)})

    def step(state: Tree, told: Message) -> Tree:
        if "mean" in state:
            return {**state, "squares": told.arrays["squares"]}
        count = np.asarray(told.arrays["count"])
        if (count > 1).sum() < 2:
            raise Refusal(
                f"fewer than two groups of {group} have values of {column} that may be told",
                remedy="merge groups, or lower smallest_cell where the sites allow it",
            )
        mean = told.arrays["total"] / np.maximum(count, 1)
        rest = {key: float(told.arrays[key]) for key in ("kept_back", "sites")}
        return {**state, "count": count, "mean": mean, **rest}

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
        most=2,
        covers=lambda agreed, site: [covered_rows(agreed, site, (column, group), only)],
        kind=kind_by_array({"groups": 1, "around": 1}),
    )


def told_of(state: Tree, column: str, group: str, cell: int) -> Report:
    used = state["count"] > 1
    levels = [level for level, ok in zip(state["levels"], used, strict=True) if ok]
    count, mean, squares = (np.asarray(state[key])[used] for key in ("count", "mean", "squares"))
    if (squares <= 0).all():
        raise Refusal(f"{column} does not vary within the groups of {group}", remedy="name another column")
    error = np.sqrt(squares / (count - 1) / count)
    numbers = {"groups": levels, "count": count.tolist(), "mean": mean.tolist()}
    numbers |= {"sd": np.sqrt(squares / (count - 1)).tolist(), "kept_back": state["kept_back"], "sites": state["sites"]}
    if len(levels) == 2:
        found = two_means(count, mean, squares)
        more = "higher" if found.difference > 0 else "lower"
        words = [
            f"{column} is on average {figure(abs(found.difference))} {more} with {group} = {levels[1]} than with"
            f" {levels[0]} (95 % interval of the difference {interval_text(found.low, found.high)}; Welch's t"
            f" {figure(found.welch.statistic)}, {p_text(found.welch.p)}): {evidence(found.welch.p)}.",
            f"That is {figure(abs(found.g), 2)} standard deviations (Hedges' g). Student's t, which takes the spreads"
            f" to be equal, gives {p_text(found.student.p)}.",
        ]
        numbers |= {"difference": found.difference, "low": found.low, "high": found.high, "g": found.g}
        numbers |= {"student": found.student._asdict(), "welch": found.welch._asdict()}
    else:
        plain, welch = variance_analysis(count, mean, squares), welch_analysis(count, mean, squares)
        words = [
            f"The means of {column} in {len(levels)} groups of {group} lie between {figure(mean.min())} and"
            f" {figure(mean.max())}: {evidence(welch.p)} (Welch's F {figure(welch.statistic)}, {p_text(welch.p)};"
            f" analysis of variance with equal spreads {p_text(plain.p)})."
        ]
        numbers |= {"anova": plain._asdict(), "welch": welch._asdict()}
    gone = [level for level, ok in zip(state["levels"], used, strict=True) if not ok]
    if gone:
        words.append(f"Nothing could be told of {group} = {listed(gone)}.")
    if state["kept_back"]:
        words.append(
            f"{state['kept_back']:.0f} patients are not counted: at their site a group was below {cell}, made up by"
            " few, or gave such a one away."
        )
    words += [text for text in (answered_text(int(state["sites"]), state["all"], cell),) if text]
    rows = [
        {"name": level, "value": float(m), "low": float(m - 1.96 * e), "high": float(m + 1.96 * e)}
        for level, m, e in zip(levels, mean, error, strict=True)
    ]
    table = FoundTable(
        "groups",
        f"{column} by {group}.",
        [group, "patients", "mean", "SD"],
        [
            [level, int(n), float(m), float(s)]
            for level, n, m, s in zip(levels, count, mean, numbers["sd"], strict=True)
        ],
    )
    chart = forest("means", f"Mean of {column} with 95 % interval", rows, column, null=None)
    return Findings(words, [table], [chart], numbers).report()
