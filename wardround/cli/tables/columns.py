"""Columns, sites and warnings, printed and as JSON. Examples are values of patients: for local commands only."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wardround.core.text import plain_line
from wardround.data.inspection.findings import Finding
from wardround.data.inspection.profile import ColumnProfile
from wardround.queries.columns import list_some

LONGEST = 60
"""Characters of the examples of a column."""
MOST_SITES = 20


def columns_table(columns: Sequence[ColumnProfile]) -> Table:
    """Name, kind, why, range or levels, missing, examples: a row a column."""
    shown = Table(title="Columns", title_justify="left")
    for head in ("column", "kind", "why", "values", "missing", "examples"):
        shown.add_column(head, justify="right" if head == "missing" else "left", overflow="fold")
    for one in columns:
        role = {"target": "target: ", "aside": "no input: "}.get(one.role, "")
        shown.add_row(
            *(Text(plain_line(cell)) for cell in (one.name, one.kind, f"{role}{one.why}", values_of(one), gaps(one))),
            Text(plain_line(shorten(", ".join(one.examples)))),
        )
    return shown


def values_of(one: ColumnProfile) -> str:
    if one.low is not None and one.high is not None:
        return f"{one.low:.6g} to {one.high:.6g}"
    return f"{one.levels:,} {'level' if one.levels == 1 else 'levels'}" if one.levels else ""


def gaps(one: ColumnProfile) -> str:
    """How many values are missing, and which share."""
    return f"{one.missing:,} ({one.missing / max(one.rows, 1):.0%})" if one.missing else "0"


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def sites_table(sites: Sequence[Mapping[str, Any]], target: str, positive: str) -> Table:
    """Rows and prevalence of every site, as far as they are not too many."""
    shown = Table(title="Sites", title_justify="left")
    for head in ("site", "rows", "train", "validation", "test", *([f"{target} = {positive}"] if positive else [])):
        shown.add_column(Text(plain_line(head)), justify="left" if head == "site" else "right")
    for one in sites[:MOST_SITES]:
        share = one.get("prevalence")
        counts = (f"{one[key]:,}" for key in ("rows", "train", "validation", "test"))
        cells = [plain_line(one["name"]), *counts, *(["" if share is None else f"{share:.1%}"] if positive else [])]
        shown.add_row(*(Text(cell) for cell in cells))
    return shown


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Each warning with its remedy and, where the rows lie, with examples."""
    for one in findings:
        shown = f" ({shorten(', '.join(one.examples))})" if one.examples else ""
        place = f" at {list_some(one.sites)}" if one.sites else ""
        console.print(
            Text(f"{'Refused' if one.stops else 'Warning'}: {plain_line(f'{one.what}{place}{shown}')}.", style="yellow")
        )
        console.print(Text(f"  Fix: {plain_line(one.remedy)}."))


def as_facts(columns: Sequence[ColumnProfile], findings: Sequence[Finding]) -> dict[str, Any]:
    """The same for programs."""
    return {"columns": [asdict(one) for one in columns], "warnings": [asdict(one) for one in findings]}
