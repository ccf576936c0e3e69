"""`wardround run` and `check` of a study with an [analysis]: the answer in sentences and tables, or as JSON."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wardround.api.commands import analyse
from wardround.core.components.terms import Extent
from wardround.core.text import plain_line
from wardround.report.analysis.page import cell
from wardround.report.html.markup import plain
from wardround.runs.analyses.analysis_result import AnalysisResult, ResultTable
from wardround.runs.file_names import REPORT
from wardround.runs.json_files import as_json as to_json
from wardround.runs.result import values_of
from wardround.study.analyses.analysis import all_settings, analysis_terms
from wardround.study.file import Study
from wardround.workflows.analysis import AnalysisPlan, check_analysis, exchanges_in_words

OUTPUT = Console()
LONG_NAME = 30
"""Letters from which the name of a row may be broken into lines."""
MOST_ROWS = 40
"""Rows of a table that a terminal shows."""


def analysis_command(study: Study, *, out: Path | None, resume: bool, as_json: bool) -> None:
    """Find the answer, write the folder and the report, print sentences and tables."""
    finished = analyse(study, out=out, resume=resume)
    report = finished.folder / REPORT
    if as_json:
        print(to_json({"folder": str(finished.folder), "report": str(report), **values_of(finished.result)}))
        return
    print_analysis(finished.result)
    OUTPUT.print(f"Report: {report}", markup=False, soft_wrap=True)


def print_analysis(result: AnalysisResult) -> None:
    for sentence in result.words:
        OUTPUT.print(plain_line(sentence), markup=False, highlight=False)
    for one in result.tables:
        OUTPUT.print(shown_table(one))
    OUTPUT.print(exchanges_in_words(result), markup=False, highlight=False)
    for note in (*result.notes, *([result.privacy] if result.privacy else [])):
        OUTPUT.print(f"Note: {plain_line(note)}", style="dim", markup=False)


def shown_table(one: ResultTable) -> Table:
    more = len(one.rows) - MOST_ROWS
    caption = Text(f"and {more:,} more rows in the report") if more > 0 else None
    shown = Table(title=Text(plain(one.caption)), title_justify="left", caption=caption, caption_justify="left")
    cells = [[plain(cell(value)) for value in row] for row in one.rows[:MOST_ROWS]]
    needed = [max(map(len, column)) for column in zip(one.columns, *cells, strict=True)]
    # The name of a row is read whole on one line; where it would leave no room for the numbers, on several.
    is_long = needed[0] > LONG_NAME and sum(needed) + 3 * len(needed) + 1 > OUTPUT.width
    for index, column in enumerate(one.columns):
        whole = (index == 0) != is_long
        shown.add_column(Text(plain(column)), justify="left" if index == 0 else "right", no_wrap=whole)
    for row in cells:
        # As Text, never as a string: a name such as "[red]" would be taken for a style.
        shown.add_row(*map(Text, row))
    return shown


def check_analysis_command(study: Study, *, as_json: bool) -> None:
    """What would be asked of whom; nothing is computed but what the sites agree on."""
    words = describe_plan(check_analysis(study))
    if as_json:
        print(to_json(words))
        return
    OUTPUT.print(f"{words['study']}: {len(words['sites'])} sites, {sum(words['sites'].values()):,} rows", markup=False)
    shown = Table()
    for name in ("column", "kind", "levels"):
        shown.add_column(Text(name))
    for name, column in words["columns"].items():
        shown.add_row(Text(plain(name)), Text(column["kind"]), Text(plain(", ".join(column["levels"]) or "-")))
    OUTPUT.print(shown)
    OUTPUT.print(words["asked"], markup=False, highlight=False)
    for note in words["notes"]:
        OUTPUT.print(f"Note: {plain_line(note)}", style="dim", markup=False)
    OUTPUT.print("The study is valid.")


def describe_plan(plan: AnalysisPlan) -> dict[str, Any]:
    terms, settings = analysis_terms(plan.recipe), all_settings(plan.recipe)
    most = terms.numbers(Extent(settings, sites=len(plan.sites), columns=len(plan.analysis.columns)))
    return {
        "study": plan.study.study.name,
        "analysis": plan.recipe.name,
        "sites": {site.name: len(site.table) for site in plan.sites},
        "columns": {
            name: {"kind": column.kind, "levels": list(column.levels)} for name, column in plan.agreed.columns.items()
        },
        "exchanges": plan.analysis.most,
        "numbers": most,
        "asked": f"Each site is asked at most {plan.analysis.most} times: {terms.describe(settings)}; at most {most:,} "
        "numbers each time.",
        "notes": list(plan.notes),
    }
