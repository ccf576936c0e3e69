"""`predict`, at a researcher's desk and at a site: read a model and a table, predict, explain, write or print."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import typer

from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.predict.patients import PIECE, PatientRows, open_patients
from wardround.predict.predictor import Predictor
from wardround.predict.table import OUTSIDE, UNKNOWN, predict_table

if TYPE_CHECKING:
    from wardround.predict.explanation import Explanation

SHOWN = 20
"""Lines shown on a terminal; a file or a pipe gets all."""
MOST_EXPLAINED = 10_000
MOST_ON_A_PAGE = 200


class Wanted(NamedTuple):
    """What the caller of a command asks for."""

    patients: str
    query: str | None = None
    settings: Mapping[str, Any] = {}
    keep: Sequence[str] = ()
    out: Path | None = None
    explain: bool = False
    page: Path | None = None
    as_json: bool = False


def predict_with(predictor: Predictor, wanted: Wanted) -> None:
    """Predict a table, and explain it where that is wanted; of a model of images, the images of a folder."""
    if len(predictor.facts.shape) == 3:
        from wardround.cli.models.images import predict_labels, predict_masks

        predict = predict_masks if predictor.facts.task.kind == "segmentation" else predict_labels
        predict(predictor, wanted)
        return
    for path in filter(None, (wanted.out, wanted.page)):
        refuse_folder(path)
    predictor.preparation  # noqa: B018 (refuses a model that takes no table, before the table is read)
    patients = open_patients(wanted.patients, predictor.facts, query=wanted.query, settings=wanted.settings)
    if wanted.explain or wanted.page:
        refuse_many(patients.rows, wanted)
    keep = list(dict.fromkeys(wanted.keep))
    with show_progress(patients.rows) as on_rows:
        table = predict_table(predictor, patients, keep=keep, on_rows=on_rows)
    if wanted.explain or wanted.page:
        from wardround.cli.models.explain import add_explanations, page_content, print_explanations

        found = explained(predictor, patients)
        lines = add_explanations(predictor, table, found, keep=len(keep))
        if wanted.page is not None:
            write_file(wanted.page, page_content(predictor, table, found, keep=len(keep)))
        if wanted.out is None and not wanted.as_json and sys.stdout.isatty():
            print_explanations(lines[:SHOWN])
            typer.echo(summary(predictor, table))
            return
    deliver(predictor, table, wanted)


def explained(predictor: Predictor, patients: PatientRows) -> "Explanation":
    from wardround.predict.explanation import explain

    names = [column.name for column in predictor.preparation.columns]
    return explain(predictor, pd.concat(patients.pieces(names), ignore_index=True), where=patients.where)


def refuse_many(rows: int, wanted: Wanted) -> None:
    most = MOST_ON_A_PAGE if wanted.page else MOST_EXPLAINED
    if rows > most:
        raise Refusal(
            f"{rows:,} patients are too many to be explained{' on one page' if wanted.page else ''}",
            where=wanted.patients,
            remedy=f"name a table of up to {most:,}",
        )


def deliver(predictor: Predictor, table: pd.DataFrame, wanted: Wanted) -> None:
    """Into a file, as JSON, as a table on a terminal, or as CSV into a pipe."""
    if wanted.out is not None:
        write_table(predictor, table, wanted.out)
    if wanted.as_json:
        typer.echo(json.dumps(facts_of(predictor, table)))
    elif wanted.out is not None:
        typer.echo(f"{summary(predictor, table)} Written to {wanted.out}.")
    elif sys.stdout.isatty():
        print_table(table)
        typer.echo(summary(predictor, table))
    else:
        typer.echo(table.to_csv(index=False), nl=False)


def facts_of(predictor: Predictor, table: pd.DataFrame) -> dict[str, Any]:
    """What JSON tells: by which model, and a record for each patient."""
    facts = predictor.facts
    patients = json.loads(table.to_json(orient="records", double_precision=15))
    return {
        "study": facts.study,
        "method": facts.method,
        "site": predictor.site,
        "target": facts.task.target,
        "patients": patients,
    }


@contextmanager
def show_progress(rows: int) -> "Iterator[Any]":
    """A bar on standard error while a long table is predicted, where somebody looks at it."""
    if rows <= PIECE or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.completed:,.0f} of {task.total:,.0f} patients"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=rows)
        yield lambda done: bars.update(task, completed=done)


def refuse_folder(path: Path) -> None:
    """Refuse a file that could not be written, before the work is done."""
    if path.is_dir() or not path.parent.is_dir():
        what = "this is a folder" if path.is_dir() else "the file's folder does not exist"
        raise Refusal(what, where=str(path), remedy="name a file in a folder that exists")


def write_table(predictor: Predictor, table: pd.DataFrame, out: Path) -> None:
    """The whole file or nothing, as CSV, Parquet or JSON."""
    suffix = out.suffix.lower()
    if suffix in (".parquet", ".pq"):
        content = parquet_content(table, out)
    elif suffix == ".json":
        content = json.dumps(facts_of(predictor, table), indent=1).encode()
    else:
        content = table.to_csv(index=False).encode()
    write_file(out, content)


def parquet_content(table: pd.DataFrame, out: Path) -> bytes:
    try:
        return table.to_parquet(index=False)
    except (ValueError, TypeError) as error:  # a kept column of numbers and words, say
        reason = str(error).splitlines()[0]
        raise Refusal(
            f"the table cannot be written as Parquet ({reason})", where=str(out), remedy="write a .csv file"
        ) from None


def write_file(path: Path, content: bytes) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        raise Refusal(
            f"the file cannot be written: {error.strerror}", where=str(path), remedy="choose another"
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
    if OUTSIDE not in table:
        from wardround.cli.models.images import count_readable

        readable, left_out = count_readable(table["file"], table["problem"])
        return f"{predictor.facts.task.target} of {readable} by {model_words(predictor)}.{left_out}"
    odd = int(((table[OUTSIDE] != "") | (table[UNKNOWN] != "")).sum())
    remark = f" {odd:,} of them {'has' if odd == 1 else 'have'} values unlike those of training." if odd else ""
    many = f"{len(table):,} patient{'' if len(table) == 1 else 's'}"
    return f"{predictor.facts.task.target} of {many} by {model_words(predictor)}.{remark}"


def model_words(predictor: Predictor) -> str:
    """Which model it is: "the common model (FedAvg) of the study icu"."""
    facts = predictor.facts
    whose = f"the model of {predictor.site}" if predictor.site else "the model"
    return f"{whose} ({facts.label}) of the study {facts.study}{adapted_to(predictor)}"


def adapted_to(predictor: Predictor) -> str:
    """Whose patients the predictions were adapted to, if anybody's."""
    adaptation = predictor.adaptation
    if adaptation is None:
        return ""
    changed = "adapted" if adaptation.risk_map.kind != "none" else "with an operating point chosen"
    whose = f"for {adaptation.site}" if adaptation.site else "for this place"
    return f", {changed} {whose} on {adaptation.patients:,} patients"
