"""`wardround predict` and its options, which `wardround site predict` shares.

Imports are inside the commands, so that help loads nothing heavy.
"""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.models.adapt import adapt
from wardround.cli.models.apply import apply
from wardround.cli.models.export import export
from wardround.cli.models.generate import generate
from wardround.cli.models.monitor import monitor
from wardround.cli.output import AsJson

PatientTable = Annotated[
    str,
    typer.Argument(
        metavar="PATIENTS", help="A CSV or Parquet file, - for standard input, or a database's address with --query."
    ),
]
SqlQuery = Annotated[str | None, typer.Option("--query", help="What to select, where PATIENTS is a database.")]
ReaderSettings = Annotated[
    list[str] | None,
    typer.Option("--setting", help='How the table is read, where otherwise than in training: separator=";".'),
]
KeptColumns = Annotated[
    list[str] | None, typer.Option("--keep", metavar="COLUMN", help="A column to repeat, such as a patient's number.")
]
OutFile = Annotated[Path | None, typer.Option("--out", help="Write a .csv, .parquet or .json file.")]
Explain = Annotated[bool, typer.Option("--explain", help="Also say what moved each prediction, and by how much.")]
PageFile = Annotated[Path | None, typer.Option("--page", help="Write the explanations, with charts, as an HTML page.")]


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a model file.")],
    patients: PatientTable,
    site: Annotated[
        str | None, typer.Option("--site", help="Use the personal model, or the rules, of this site.")
    ] = None,
    method: Annotated[str | None, typer.Option("--method", help="Whose model, where a run compared methods.")] = None,
    query: SqlQuery = None,
    setting: ReaderSettings = None,
    keep: KeptColumns = None,
    out: OutFile = None,
    explain: Explain = False,
    page: PageFile = None,
    unadapted: Annotated[bool, typer.Option("--unadapted", help="Without what `adapt` found for the site.")] = False,
    as_json: AsJson = False,
) -> None:
    """Predict the outcome of new patients with a trained model."""
    with uncollected():
        from wardround.cli.models.predict import Wanted, predict_with
        from wardround.cli.party.site_data import parse_settings
        from wardround.predict.predictor import load_predictor
        from wardround.runs.explain.selection_file import has_selection

        words = parse_settings(setting or [])
        wanted = Wanted(patients, query, words, keep or (), out, explain, page, as_json)
        if has_selection(run):
            from wardround.cli.models.selection import predict_by_rules

            predict_by_rules(run, site, wanted)
            return
        predictor = load_predictor(run, method, site, adapted=not unadapted)
    predict_with(predictor, wanted)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection: what libraries make while they load stays, and looking through it takes long.

    Nor is it looked through when the process ends: together that saves a third of the time that one patient takes.
    """
    gc.disable()
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        gc.enable()


def add_commands(app: typer.Typer) -> None:
    for command in (predict, adapt, monitor, export, apply, generate):
        app.command()(command)
