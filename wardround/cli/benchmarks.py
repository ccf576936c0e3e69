"""`wardround bench`: the benchmarks lie beside the package in a checkout, not in an installed package."""

import importlib
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from wardround.core.errors import Refusal

CASES = ("tabular", "hospitals", "images", "scale")


def bench_command(name: str | None, *, as_json: bool) -> None:
    if name is not None and name not in CASES:
        raise Refusal(f"there is no benchmark called '{name}'", remedy=f"choose one of {', '.join(CASES)}")
    root = Path(__file__).resolve().parents[2]
    if not (root / "benchmarks" / "bench.py").exists():
        raise Refusal(
            "the benchmarks are not part of an installed package", remedy="clone the repository and run `make bench`"
        )
    sys.path.insert(0, str(root))
    bench = importlib.import_module("benchmarks.bench")
    errors = Console(stderr=True)
    found = {}
    for case in (name,) if name else CASES:
        with errors.status(f"measuring {case}, one thing at a time; this takes some minutes"):
            found[case] = bench.measure(case)
        if not as_json:
            print_case(case, found[case])
    if as_json:
        print(json.dumps(found))


def print_case(case: str, rows: list[dict[str, object]]) -> None:
    table = Table(title=case, title_justify="left", title_style="bold", box=None)
    for column in rows[0]:
        table.add_column(column, justify="left" if column == next(iter(rows[0])) else "right")
    for row in rows:
        table.add_row(*(f"{value:,.3g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)
