"""Privacy, uneven data and fairness over many settings: plots by privacy level, one table, and claims put to the test.

For a comparison whose cases differ in their partition and in their privacy. What each case is, is read from its
manifest; its figures are those of single repeats in its result. A claim is only called borne out where repeats show it
beyond chance, and only where every partition was run at every level.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wardround.evaluate.comparison import paired_values
from wardround.evaluate.fairness_claims import Arms, Claim, judge_claims
from wardround.report import numbers
from wardround.report.fairness.section import INDEX
from wardround.report.fairness.verdicts import MEANINGS as MEASURES
from wardround.report.fairness.verdicts import claim_answers, claim_tests, label, title_of
from wardround.report.html.charts import Chart, Spec, layout, span
from wardround.report.html.document import chart_figures
from wardround.report.html.markup import Html, bullets, chart_label, details, join, paragraph, plain, safe, table
from wardround.report.html.palette import colour, mark
from wardround.report.metric_names import direction
from wardround.runs.fields import Json, mapping, number
from wardround.runs.read import read_manifest, read_result
from wardround.runs.result import CasesResult, RunResult

PARTITIONS = {
    "iid": "divided at random",
    "by_class": "class imbalance",
    "by_feature": "feature imbalance",
    "by_quantity": "node imbalance",
}
MEANINGS = {
    "iid": "every site has the same mix of patients",
    "by_class": "the outcome is frequent at some sites and rare at others",
    "by_feature": "sites differ in {column}",
    "by_quantity": "some sites have far more patients than others",
}
FAIR = "0 is fair"
UTILITY = ("f1", "precision", "recall", "roc_auc", "accuracy")
CROSSED = " and "
NONE = "none"


@dataclass(frozen=True)
class Cell:
    """One case: a partition at a privacy level."""

    partition: str
    title: str
    epsilon: float | None
    """None: without privacy."""
    repeats: tuple[Mapping[str, float | None], ...]
    sizes: Mapping[str, Mapping[str, float]]
    """Column, group, patients."""
    test_share: float
    spent: float | None
    column: str = ""
    """By which sites differ, where the partition says so."""


@dataclass(frozen=True)
class Grid:
    """All cases, by partition and level; none where one is missing."""

    cells: tuple[Cell, ...]

    @property
    def partitions(self) -> dict[str, str]:
        return {cell.partition: cell.title for cell in self.cells}

    @property
    def levels(self) -> list[float | None]:
        """From none to the strictest."""
        found = {cell.epsilon for cell in self.cells}
        known = sorted((epsilon for epsilon in found if epsilon is not None), reverse=True)
        return [*([None] if None in found else []), *known]

    @property
    def columns(self) -> dict[str, str]:
        """Every protected column with its largest group, by the first case."""
        sizes = self.cells[0].sizes
        return {name: max(own, key=lambda group: own[group]) for name, own in sizes.items() if own}

    def at(self, partition: str, epsilon: float | None) -> Cell | None:
        return next((cell for cell in self.cells if (cell.partition, cell.epsilon) == (partition, epsilon)), None)

    def arms(self) -> Arms | None:
        """For the claims: none unless every partition was run at every level, equally often."""
        rows = {name: [self.at(name, epsilon) for epsilon in self.levels] for name in self.partitions}
        cells = [cell for row in rows.values() for cell in row]
        if len(self.levels) < 3 or len({len(cell.repeats) if cell else -1 for cell in cells}) != 1 or None in cells:
            return None
        figures = {name: [cell.repeats for cell in row if cell] for name, row in rows.items()}
        return Arms(figures, [level_name(epsilon) for epsilon in self.levels], self.columns)


def level_name(epsilon: float | None) -> str:
    return NONE if epsilon is None else f"{epsilon:g}"


def read_grid(folder: Path, result: CasesResult) -> Grid:
    """The cases whose folders tell of groups; one method a case is looked at, the reference."""
    cells = []
    for case in result.cases:
        place = folder / case.folder
        own, manifest = read_result(place), read_manifest(place) or {}
        if own is not None and isinstance(own.result, RunResult):
            cell = read_cell(own.result, mapping(manifest.get("study")), result.against)
            cells += [cell] if cell is not None else []
    return Grid(tuple(cells))


def read_cell(result: RunResult, study: Json, against: str) -> Cell | None:
    method = next((one for one in result.methods if one.name == against), None)
    if method is None or method.fairness is None or not method.fairness.repeats:
        return None
    partition = mapping(mapping(study.get("data")).get("partition"))
    name, degree = str(partition.get("name") or "as it is"), number(partition.get("degree"))
    title = PARTITIONS.get(name, name) + (f" ({degree:g})" if degree is not None else "")
    sizes = {
        column: {group: entry.rows or 0.0 for group, entry in one.groups.items()}
        for column, one in method.fairness.columns.items()
        if CROSSED not in column
    }
    tested, everyone = sum(site.test or 0 for site in result.sites), sum(site.patients for site in result.sites)
    spent = number(mapping(method.meters.get("privacy")).get("sample_epsilon"))
    epsilon = number(mapping(study.get("privacy")).get("epsilon"))
    return Cell(
        name,
        title,
        epsilon,
        method.fairness.repeats,
        sizes,
        tested / (everyone or 1.0),
        spent,
        str(partition.get("column") or ""),
    )


def poster_section(folder: Path, result: CasesResult) -> Html:
    """The whole section; nothing where the cases do not differ in privacy or tell of no groups."""
    grid = read_grid(folder, result)
    if len(grid.levels) < 2 or not grid.columns:
        return Html("")
    claims = claims_of(grid)
    utility = [name for name in measure_names(grid) if name in UTILITY]
    fairness = [name for name in measure_names(grid) if name not in UTILITY]
    return join(
        [
            paragraph(introduction(grid)),
            bullets(meanings(grid)),
            claim_answers(claims)
            if claims
            else paragraph(Html("Not every setting is finished: no claim is tested yet.")),
            details("What the measures mean", bullets(safe(words) for words in MEASURES)),
            chart_figures("fairness", charts(grid)),
            figure_table(grid, "How well the model predicts, in all settings: means over repeats", utility),
            figure_table(
                grid, "How fair it is, in all settings: means over repeats; for all of these 0 is fair", fairness
            ),
            details("How every claim was tested", *(claim_tests(claim, grid.partitions) for claim in claims))
            if claims
            else Html(""),
        ]
    )


def claims_of(grid: Grid) -> list[Claim]:
    """Every claim with its tests; none unless all settings are there."""
    arms = grid.arms()
    return judge_claims(arms, test_share=grid.cells[0].test_share) if arms else []


def poster_summary(folder: Path, result: CasesResult) -> str:
    """A few sentences for the top of the page; empty where there is no such section."""
    grid = read_grid(folder, result)
    claims = claims_of(grid) if len(grid.levels) > 1 and grid.columns else []
    if not claims:
        return ""
    verdicts = [claim.verdict for claim in claims]
    first = next((claim for claim in claims if {"f1", "roc_auc"} <= {test.what for test in claim.tests}), None)
    costs = [
        f"{label(name)} went from {numbers.score(before)} to {numbers.score(after)}"
        for name in ("f1", "roc_auc")
        if first is not None and None not in (ends := first.mean_ends(name))
        for before, after in [(ends[0] or 0.0, ends[1] or 0.0)]
    ]
    spoken = f" From none to the strictest level {' and '.join(costs)}, on average." if costs else ""
    return (
        f"Of {len(claims)} claims about privacy, uneven data and fairness these data bear out "
        f"{verdicts.count('borne out') or 'none'} and contradict {verdicts.count('contradicted') or 'none'}; about "
        f"{verdicts.count('cannot be told from these data') or 'none'} they cannot tell.{spoken}"
    )


def limits(folder: Path, result: CasesResult) -> list[Html]:
    """What a reader must not take from the section; nothing where there is none."""
    if not poster_summary(folder, result):
        return []
    return [
        Html("“Cannot be told” does not mean “wrong”: with few repeats of one data set, only large differences show."),
        Html(
            "Privacy by DP-SGD cuts every patient's gradient and adds noise. Without privacy neither is done, so the "
            "first step, from none to the loosest level, shows both; the others show the noise."
        ),
        Html(
            "One model with one learning rate was used in all settings; tuned to a setting, it might do better there."
        ),
        Html("Epsilon does not cover how rows were prepared, nor the figures on this page."),
    ]


def introduction(grid: Grid) -> Html:
    repeats = max(len(cell.repeats) for cell in grid.cells)
    columns = " and ".join(plain(name) for name in grid.columns)
    return safe(
        f"Epsilon limits what the model can reveal about any one patient: the smaller, the stricter; “{NONE}” is no "
        f"limit. Each way of dividing the patients among sites was run at {len(grid.levels)} levels (epsilon "
        f"{', '.join(map(level_name, grid.levels))}), {repeats} times each on new splits. Groups are by {columns}. "
        "Bars and ± are 95 % intervals over repeats, widened because splits share patients."
    )


def meanings(grid: Grid) -> list[Html]:
    """What the ways to deal patients out are; the number in brackets is their degree."""
    found = {cell.partition: cell for cell in grid.cells}
    return [
        safe(f"{cell.title}: {MEANINGS[name].format(column=plain(cell.column or 'one column'))}")
        for name, cell in found.items()
        if name in MEANINGS
    ]


def measure_names(grid: Grid) -> list[str]:
    """What is plotted and tabled."""
    keys = ("differential_fairness", "equal_opportunity_gap", "equal_odds_gap")
    return [*UTILITY, INDEX, *(f"{column}/{key}" for column in grid.columns for key in keys)]


@dataclass(frozen=True)
class RepeatMean:
    """A figure's mean over repeats with its interval, or the reason why there is none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    note: str = ""


def repeat_mean(cell: Cell | None, name: str) -> RepeatMean:
    """The mean with its interval; undefined where no repeat has a value."""
    values = [repeat.get(name) for repeat in cell.repeats] if cell else []
    found = paired_values(
        values, [0.0] * len(values), higher_is_better=True, test_share=cell.test_share if cell else 0.0
    )
    if found.value is None:
        return RepeatMean(reason="in no repeat" if cell else "not run")
    lost = len(values) - found.repeats
    return RepeatMean(found.value, found.low, found.high, note=f"undefined in {lost} of {len(values)}" if lost else "")


def charts(grid: Grid) -> list[Chart]:
    lines = [chart(grid, name) for name in measure_names(grid)]
    return [*lines, *(group_chart(grid, column) for column in grid.columns)]


def chart(grid: Grid, name: str) -> Chart:
    """One measure by privacy level, a line a partition."""
    title = f"{label(name)} ({direction(name) or FAIR})"
    rows = [
        (words, [repeat_mean(grid.at(partition, epsilon), name) for epsilon in grid.levels])
        for partition, words in grid.partitions.items()
    ]
    return lines_of(grid, title, f"{title} by privacy level, a line for each way of dividing the patients.", rows)


def group_chart(grid: Grid, column: str) -> Chart:
    """The recall of every group, with rows dealt out as in the first partition."""
    partition, words = next(iter(grid.partitions.items()))
    rows = [
        (group, [repeat_mean(grid.at(partition, e), f"{column}/recall/{group}") for e in grid.levels])
        for group in grid.cells[0].sizes[column]
    ]
    title = f"Recall by {title_of(column).lower()}, {plain(words)}"
    return lines_of(grid, title, f"{title}: by privacy level, a line for each group.", rows)


def lines_of(grid: Grid, title: str, spoken: str, rows: Sequence[tuple[str, Sequence[RepeatMean]]]) -> Chart:
    seen = [x for _, row in rows for m in row for x in (m.value, m.low, m.high) if x is not None]
    step = 0.12
    traces = [line(words, index, row, step * (index - (len(rows) - 1) / 2)) for index, (words, row) in enumerate(rows)]
    names = [level_name(epsilon) for epsilon in grid.levels]
    axis = {
        "tickvals": list(range(len(names))),
        "ticktext": [chart_label(name) for name in names],
        "range": [-0.5, len(names) - 0.5],
        "title": {"text": "epsilon (stricter to the right)"},
    }
    height = 330
    margin = {"l": 10, "r": 10, "t": 64, "b": 44}
    return Chart(
        title, spoken, traces, layout(height, x=axis, y={"range": span(seen)}, margin=margin), height, half=True
    )


def line(name: str, index: int, measures: Sequence[RepeatMean], shift: float) -> Spec:
    known = [(place + shift, m) for place, m in enumerate(measures) if m.value is not None]
    bars: dict[str, Any] = {"type": "data", "symmetric": False, "thickness": 1.5, "width": 0, "color": colour(index)}
    bars["array"] = [max(0.0, m.high - (m.value or 0)) if m.high is not None else 0.0 for _, m in known]
    bars["arrayminus"] = [max(0.0, (m.value or 0) - m.low) if m.low is not None else 0.0 for _, m in known]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": chart_label(name),
        "x": [place for place, _ in known],
        "y": [m.value for _, m in known],
        "error_y": bars,
        "line": {"color": colour(index), "width": 1.5},
        "marker": {"color": colour(index), "symbol": mark(index), "size": 8},
        "hoverinfo": "text",
        "hovertext": [f"{chart_label(name)}: {numbers.score(m.value or 0.0)}" for _, m in known],
    }


def figure_table(grid: Grid, caption: str, names: Sequence[str]) -> Html:
    rows = []
    for partition, title in grid.partitions.items():
        for epsilon in grid.levels:
            cell = grid.at(partition, epsilon)
            spent = "" if cell is None or cell.spent is None else f" (spent {cell.spent:.3g})"
            head = safe(f"{title}, epsilon {level_name(epsilon)}{spent}")
            rows.append([head, *(figure_cell(repeat_mean(cell, name)) for name in names)])
    return table(caption, [Html("Setting"), *(safe(label(name)) for name in names)], rows)


def figure_cell(measure: RepeatMean) -> Html:
    if measure.value is None:
        return Html(f'<span class="undefined">not defined: {safe(measure.reason)}</span>')
    reach = "" if measure.high is None else f"± {numbers.score(measure.high - measure.value)}"
    small = "; ".join(filter(None, [reach, measure.note]))
    return join([safe(numbers.score(measure.value)), Html(f'<span class="interval">{safe(small)}</span>')], " ")
