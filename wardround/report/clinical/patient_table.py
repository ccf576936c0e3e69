"""The table of the patients ("table 1"): every column by hospital and over all, with what is missing."""

from collections.abc import Iterable, Sequence

from wardround.report import numbers
from wardround.report.html.markup import Cell, FigureCell, Html, details, join, paragraph, plain, safe, table
from wardround.report.unit import unit_of, units_of
from wardround.runs.clinical.patient_table import PatientCell, PatientColumn, PatientTable
from wardround.runs.fields import Json, mapping
from wardround.runs.run import Run

OPEN = 8
"""Columns of the data that stand open; the others are folded away."""
NOT_SHOWN = "not shown"


def table_section(run: Run) -> Html:
    """The table, or why there is none."""
    if run.patient_table is None or not run.patient_table.columns:
        return missing_table(run)
    told = run.patient_table
    first, rest = told.columns[:OPEN], told.columns[OPEN:]
    units = mapping(mapping(mapping(run.manifest.get("study")).get("data")).get("units"))
    of = units_of(run)
    parts = [table_words(told, of), html_table(told, first, units, of, heading=True)]
    if rest:
        parts.append(details(f"{len(rest)} further columns", html_table(told, rest, units, of, heading=False)))
    if told.columns_left_out:
        parts.append(paragraph(safe(f"{told.columns_left_out:,} more columns are not listed.")))
    return join(parts)


def missing_table(run: Run) -> Html:
    if unit_of(run) == "image":  # which have no columns to tell of
        return Html("")
    if run.kind == "deployed":
        return paragraph(
            safe(
                "There is no table of the patients: the hospitals told nothing of which one could be made. Each "
                "hospital has the table of its own patients in its own report (`wardround site report`)."
            )
        )
    if (run.manifest.get("study") or {}).get("privacy") and run.finished:
        return paragraph(safe("There is no table of the patients: under [privacy] nothing exact is told of them."))
    return Html("")


def table_words(told: PatientTable, of: str) -> Html:
    words = [f"Numbers: median (quartiles). Categories: {of} (share of those with a known value)."]
    if any(column.all.mean is not None for column in told.columns):
        words[0] = f"Numbers: mean and standard deviation (SD). Categories: {of} (share of those with a known value)."
    if told.rounded:
        words.append(
            f"Of training {of}, as hospitals told them before training; the outcome is not among it. Counts are "
            f"rounded down to multiples of {told.smallest_cell} at each hospital, smaller ones are 0, and quartiles "
            "are right to about a 64th of a column's range. Each hospital has the exact table of its own patients in "
            "its own report (`wardround site report`)."
        )
    elif (told.smallest_cell or 1) > 1:
        words.append(
            f"Counts below {told.smallest_cell} are not shown, nor others from which they could be worked out."
        )
    if told.sites_left_out:
        words.append(f"There are {told.sites_left_out:,} hospitals, too many for a column each.")
    return paragraph(safe(" ".join(words)))


def html_table(told: PatientTable, columns: Sequence[PatientColumn], units: Json, of: str, *, heading: bool) -> Html:
    rows: list[Sequence[Cell]] = []
    alone = len(told.sites) == 1 and not told.sites_left_out  # a second column would say the same
    sites = [] if alone else list(told.sites)
    if heading:
        counts = [] if alone else list(map(numbers.count, told.sites.values()))
        rows.append([of.capitalize(), numbers.count(told.patients), *counts])
    for column in columns:
        rows += column_rows(column, sites, str(units.get(column.name, "")))
    whose = f"The training {of}" if told.rounded else f"The {of}"
    caption = f"{whose}, before gaps were filled" if heading else "Further columns"
    return table(caption, ["Column", *(told.sites if alone else ("All hospitals", *sites))], rows, kind="patients")


def column_rows(column: PatientColumn, sites: Sequence[str], unit: str) -> Iterable[Sequence[Cell]]:
    cells = [column.all, *(column.sites.get(site, PatientCell(missing=None)) for site in sites)]
    name = f"{plain(column.name)}, {plain(unit)}" if unit else plain(column.name)
    name = f"{name} (outcome)" if column.outcome else name
    if column.kind == "number":
        yield [name, *(number_cell(cell) for cell in cells)]
    else:
        yield [Html(f"<strong>{safe(name)}</strong>"), *(Html("") for _ in cells)]
        for place, level in enumerate(column.levels):
            last = column.further_levels and place == len(column.levels) - 1
            words = f"{plain(level)} ({column.further_levels:,} further values)" if last else plain(level)
            yield [Html(f'<span class="level">{safe(words)}</span>'), *(level_cell(cell, place) for cell in cells)]
    if any(cell.missing != 0 for cell in cells):
        yield [Html('<span class="level quiet">missing</span>'), *(missing_cell(cell) for cell in cells)]


def number_cell(cell: PatientCell) -> Cell:
    if cell.mean is not None:
        return FigureCell(short(cell.mean), (f"SD {short(cell.sd or 0.0)}",))
    if cell.median is None or cell.low is None or cell.high is None:
        return "none known" if cell.missing else NOT_SHOWN
    return FigureCell(short(cell.median), (f"{short(cell.low)} to {short(cell.high)}",))


def short(value: float) -> str:
    """Three digits, and no decimals of whole numbers."""
    whole = float(value).is_integer() and abs(value) < 1e6
    return f"{value:,.0f}".replace("-", numbers.MINUS) if whole else f"{value:.3g}".replace("-", numbers.MINUS)


def level_cell(cell: PatientCell, place: int) -> Cell:
    count = cell.counts[place] if place < len(cell.counts) else None
    if count is None:
        return NOT_SHOWN
    known = [one for one in cell.counts if one is not None]
    if len(known) < len(cell.counts) or not sum(known):
        return f"{count:,}"
    return f"{count:,} ({numbers.share(count / sum(known))})"


def missing_cell(cell: PatientCell) -> Cell:
    return NOT_SHOWN if cell.missing is None else f"{cell.missing:,}"
