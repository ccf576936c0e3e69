"""The commands that use a trained model: predictions for new patients."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.predict.patients import read_patients
from wardround.predict.predictor import Predictor, read_predictor
from wardround.predict.table import predict_table
from wardround.runs.models import find_model

SHOWN = 20
"""Lines shown on a terminal; a file or a pipe gets all."""


def predict_command(
    run: Path,
    patients: str,
    *,
    method: str | None,
    site: str | None,
    query: str | None,
    keep: Sequence[str],
    out: Path | None,
    as_json: bool,
) -> None:
    """`predict`: read the model and the table, predict, write or print."""
    predictor = read_predictor(find_model(run, method, site), site)
    predict_with(predictor, patients, query=query, keep=keep, out=out, as_json=as_json)


def predict_with(
    predictor: Predictor, patients: str, *, query: str | None, keep: Sequence[str], out: Path | None, as_json: bool
) -> None:
    frame = read_patients(patients, predictor.facts, query=query)
    table = predict_table(predictor, frame, keep=keep, where="the query" if query else patients)
    if out is not None:
        write_table(table, out)
    if as_json:
        typer.echo(table.to_json(orient="records"))
    elif out is not None:
        typer.echo(f"{summary(predictor, table)} Written to {out}.")
    elif sys.stdout.isatty():
        print_table(table)
        typer.echo(summary(predictor, table))
    else:
        typer.echo(table.to_csv(index=False), nl=False)


def write_table(table: pd.DataFrame, out: Path) -> None:
    """The whole file or nothing, as CSV or Parquet."""
    content = table.to_parquet(index=False) if out.suffix == ".parquet" else table.to_csv(index=False).encode()
    try:
        write_whole(out, content)
    except OSError as error:
        raise Refusal(
            f"the file cannot be written: {error.strerror}", where=str(out), remedy="choose another"
        ) from None


def print_table(table: pd.DataFrame) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(*map(str, table.columns))
    for row in table.head(SHOWN).itertuples(index=False):
        shown.add_row(*map(cell, row))
    Console().print(shown)
    if len(table) > SHOWN:
        typer.echo(f"... and {len(table) - SHOWN:,} more; write all of them with --out FILE")


def cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def summary(predictor: Predictor, table: pd.DataFrame) -> str:
    """One sentence: how many, by which model, and of how many something is remarkable."""
    facts = predictor.facts
    whose = f"the model of {predictor.site}" if predictor.site else "the common model"
    odd = int((table["outside the training range"] != "").sum() + (table["unknown"] != "").sum())
    remark = f" {odd:,} values are unlike those of training." if odd else ""
    many = f"{len(table):,} patient{'' if len(table) == 1 else 's'}"
    return f"{facts.task.target} of {many} by {whose} ({facts.label}) of {facts.study}.{remark}"
