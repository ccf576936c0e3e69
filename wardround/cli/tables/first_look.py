"""`wardround check TABLE`: a first look at a table without a study: its columns, and a study file to begin with."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from wardround.cli.studies import OUTPUT
from wardround.cli.tables.columns import as_facts, columns_table, print_findings
from wardround.core.text import plain_line
from wardround.data.assembly import POOL
from wardround.data.cleanup import Cleanup, clean_table
from wardround.data.inspection.findings import Finding, find_in_table
from wardround.data.inspection.profile import ColumnProfile, profile_table
from wardround.data.sources.csv import SUFFIXES, csv
from wardround.data.sources.parquet import SUFFIXES as PARQUET
from wardround.data.sources.parquet import parquet

NO_TARGET = "(not said yet)"
OUTCOME = re.compile(
    r"outcome|target|label|died|death|dead|mortality|survived|readmi|disease|diagnosis|class$|^y$", re.I
)
SITE = re.compile(r"site|hospital|cent(er|re)|clinic|institution|facility|ward$", re.I)
MOST_SITES = 200


def is_table(path: Path) -> bool:
    """Whether the path names rows and not a study."""
    return path.name.lower().endswith((*SUFFIXES, *PARQUET))


def look_command(path: Path, *, as_json: bool) -> None:
    """Print the columns of a table and a study file that would begin with it."""
    source = "parquet" if path.name.lower().endswith(PARQUET) else "csv"
    read = parquet if source == "parquet" else csv
    table = clean_table(read(path=path, target=NO_TARGET), Cleanup())
    columns, findings = profile_table(table), find_in_table(table)
    proposed = propose_study(path, source, columns, findings)
    if as_json:
        print(json.dumps({"rows": len(table.sites[POOL]), **as_facts(columns, findings), "study": proposed}))
        return
    OUTPUT.print(f"{len(table.sites[POOL]):,} rows, {len(columns)} columns")
    OUTPUT.print(columns_table(columns))
    for note in table.notes:
        OUTPUT.print(Text(f"Note: {plain_line(note)}", style="dim"))
    print_findings(OUTPUT, findings)
    OUTPUT.print("A study file to begin with; correct what is guessed, then check it:")
    print(f"\n{proposed}")


def propose_study(path: Path, source: str, columns: Sequence[ColumnProfile], findings: Sequence[Finding]) -> str:
    """A study file with site, target and columns to drop as guessed from names and values."""
    identifying = [one.column for one in findings if one.kind == "identifier"]
    few = [one for one in columns if one.name not in identifying and 2 <= one.levels <= MOST_SITES]
    site = next((one.name for one in few if SITE.search(one.name) and one.kind != "mixed"), "")
    answers = [one for one in few if one.levels == 2 and one.name != site] or [one for one in few if one.name != site]
    named = [one for one in answers if OUTCOME.search(one.name)]
    target = (named or answers[-1:] or list(columns[-1:]))[0] if columns else None
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", path.name.split(".")[0]).lstrip("_.-") or "study"
    lines = ["[study]", f"name = {json.dumps(name)}", "rounds = 50", "", "[data]", f"source = {json.dumps(source)}"]
    lines.append(f"path = {json.dumps(str(path), ensure_ascii=False)}")
    if site:
        lines.append(f"site = {json.dumps(site, ensure_ascii=False)}  # guessed from its name")
    if target is not None:
        lines.append(f"target = {json.dumps(target.name, ensure_ascii=False)}  # guessed: what is to be predicted")
    if identifying:
        lines.append(f"drop = {json.dumps(identifying, ensure_ascii=False)}  # seem to name patients")
    if not site:
        lines += ["", "[data.partition]  # no column names the site: the rows are dealt out at random", 'name = "iid"']
        lines.append("sites = 4")
    return "\n".join(lines) + "\n"
