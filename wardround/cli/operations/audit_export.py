"""`audit export`: a log as a table for a spreadsheet, as a page for a browser, or as a PDF for the file."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from wardround.cli.audit import examine_log, is_about
from wardround.cli.operations.printed_pages import pdf_bytes
from wardround.cli.output import say
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.core.text import plain_line

COLUMNS = ("number", "time", "kind", "study", "topic", "round", "to", "bytes", "sha256", "by", "why", "further")
FORMULA = ("=", "+", "-", "@")
"""How a cell begins that a spreadsheet would compute."""


def export_command(path: Path, out: Path, keys: Path | None, *, study: str | None, as_json: bool) -> None:
    """Write the log; exit code 2 where it was changed, which the page says, too."""
    if out.suffix not in (".csv", ".html", ".pdf"):
        remedy = "name a file .csv, .html or .pdf"
        raise Refusal(f"there is no format '{out.suffix}'", where=str(out), remedy=remedy)
    examined, whole = examine_log(path, keys, ())
    entries = [(number, one) for number, one in enumerate(examined.entries, start=1)]
    shown = [(number, one) for number, one in entries if study is None or is_about(one, study)]
    rows = [row_of(number, one) for number, one in shown]
    state = whole if not examined.findings else "; ".join(str(finding) for finding in examined.findings)
    if out.suffix == ".pdf":
        content = pdf_bytes(f"Audit log {path}", [state, "", *map(printed_line, rows)])
    else:
        content = (csv_text(rows) if out.suffix == ".csv" else page_text(path, rows, state)).encode()
    write_whole(out, content)
    say(
        {"log": str(path), "out": str(out), "entries": len(rows)},
        [f"{len(rows)} entries are in {out}. {state}"],
        as_json,
    )
    if examined.findings:
        raise typer.Exit(2)


def row_of(number: int, entry: Mapping[str, Any]) -> list[str]:
    """An entry in the columns; what has none is in the last, as JSON."""
    known = {key: entry[key] for key in COLUMNS if key in entry}
    rest = {key: value for key, value in entry.items() if key not in COLUMNS}
    found = {**known, "number": number, "further": json.dumps(rest, ensure_ascii=False, sort_keys=True) if rest else ""}
    return [plain_line(found.get(column, "")) for column in COLUMNS]


def printed_line(row: Sequence[str]) -> str:
    """An entry as a line that says which column a word is of; empty columns are left out."""
    told = [f"{column} {cell}" for column, cell in zip(COLUMNS[3:], row[3:], strict=True) if cell]
    return f"{row[0]:>6}  {row[1]}  {row[2]}  {'  '.join(told)}"


def csv_text(rows: Sequence[Sequence[str]]) -> str:
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(COLUMNS)
    # A site's or researcher's words must not become a formula on somebody's desk.
    table.writerows([f"'{cell}" if cell.startswith(FORMULA) else cell for cell in row] for row in rows)
    return file.getvalue()


def page_text(path: Path, rows: Sequence[Sequence[str]], state: str) -> str:
    """One page without scripts, wide and in small print, its heading repeated on every sheet."""
    from wardround.report.html.markup import safe

    heads = "".join(f"<th>{safe(one)}</th>" for one in COLUMNS)
    cells = [[f"<td>{safe(one)}</td>" if one else "<td></td>" for one in row] for row in rows]
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in cells)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Audit log</title>\n<style>\n'
        "@page { size: A4 landscape; margin: 12mm }\n"
        "body { font: 9px/1.35 sans-serif } h1 { font-size: 14px }\n"
        "table { border-collapse: collapse; width: 100% } thead { display: table-header-group }\n"
        "th, td { border: 0.5px solid #999; padding: 2px 3px; text-align: left; vertical-align: top;"
        " overflow-wrap: anywhere }\ntr { break-inside: avoid }\n</style></head><body>\n"
        f"<h1>Audit log {safe(path)}</h1>\n<p>{safe(state)}</p>\n"
        f"<table><thead><tr>{heads}</tr></thead><tbody>\n{body}</tbody></table>\n</body></html>\n"
    )
