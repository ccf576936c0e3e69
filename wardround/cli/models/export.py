"""`wardround export`: a trained model for other programs. Imports are inside, so that help loads nothing heavy."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.output import AsJson
from wardround.core.errors import Refusal
from wardround.core.files import write_whole

if TYPE_CHECKING:
    from wardround.predict.predictor import Predictor

Writer = Callable[[Path, "Predictor", Path], str]
"""Writes the file; gives a sentence that says what to do with it."""


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a model file.")],
    kind: Annotated[str, typer.Option("--to", metavar="KIND", help="onnx, sklearn or calculator.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    site: Annotated[str | None, typer.Option("--site", help="Export the personal model of this site.")] = None,
    method: Annotated[str | None, typer.Option("--method", help="Whose model, where a run compared methods.")] = None,
    units: Annotated[
        list[str] | None, typer.Option("--unit", metavar="COLUMN=UNIT", help="The unit of a column, such as age=years.")
    ] = None,
    unadapted: Annotated[bool, typer.Option("--unadapted", help="Without what `adapt` found for the site.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a trained model as an ONNX file, for scikit-learn, or as a calculator: one HTML file for a telephone."""
    from wardround.engine.registry import suggest_name
    from wardround.predict.predictor import load_predictor

    if kind not in WRITERS:
        raise Refusal(f"there is no export to {kind!r}", where="--to", remedy=suggest_name(kind, tuple(WRITERS)))
    refuse_place(out)
    predictor = with_units(load_predictor(run, method, site, adapted=not unadapted), units or ())
    try:
        words = WRITERS[kind](out, predictor, run)
    except OSError as error:
        raise Refusal(
            f"the file cannot be written: {error.strerror}", where=str(out), remedy="choose another"
        ) from None
    if as_json:
        typer.echo(json.dumps({"kind": kind, "file": str(out), "bytes": out.stat().st_size}))
    else:
        typer.echo(f"Written to {out} ({out.stat().st_size:,} bytes). {words}")


def with_units(predictor: "Predictor", units: Sequence[str]) -> "Predictor":
    """The units that the study told, and those that are told now."""
    from wardround.engine.registry import suggest_name

    if not units:
        return predictor
    facts = predictor.facts
    known = (*(column.name for column in predictor.preparation.columns), facts.task.target)
    told = dict(facts.units)
    for one in units:
        name, _, unit = one.rpartition("=")
        if not name or not unit:
            raise Refusal(f"{one!r} names no column and its unit", where="--unit", remedy="write it as age=years")
        if name not in known:
            raise Refusal(f"the model has no column {name!r}", where="--unit", remedy=suggest_name(name, known))
        told[name] = unit
    return replace(predictor, facts=facts.model_copy(update={"units": told}))


def refuse_place(out: Path) -> None:
    if out.exists():
        raise Refusal("there is such a file already", where=str(out), remedy="choose another name, or remove it first")
    if not out.absolute().parent.is_dir():
        raise Refusal("there is no such folder", where=str(out.parent), remedy="make it, or choose another")


def write_onnx(out: Path, predictor: "Predictor", run: Path) -> str:
    from wardround.export.onnx_model import onnx_bytes

    write_whole(out, onnx_bytes(predictor))
    takes = "the raw columns" if predictor.facts.preparation else "images"
    return f"It takes {takes}; made-up rows gave the model's predictions in onnxruntime."


def write_sklearn(out: Path, predictor: "Predictor", run: Path) -> str:
    from wardround.export.sklearn_model import write_single

    if predictor.adaptation is not None:
        raise Refusal(
            "this model was adapted to a site's own patients, and a model file does not hold that",
            where=str(run),
            remedy="export it with --unadapted, or open the run itself: wardround.sklearn_model(RUN, site=...)",
        )
    write_single(out, predictor)
    return f"Use it in Python: import wardround; model = wardround.sklearn_model({str(out)!r})"


def write_calculator(out: Path, predictor: "Predictor", run: Path) -> str:
    from wardround.export.calculator.page import calculator_page

    write_whole(out, calculator_page(predictor, run if run.is_dir() else None).encode())
    return "Open it in any browser; it needs no network and sends nothing."


WRITERS: dict[str, Writer] = {"onnx": write_onnx, "sklearn": write_sklearn, "calculator": write_calculator}
