"""The command that makes a trained model usable in other programs."""

import json
from collections.abc import Callable
from pathlib import Path

import typer

from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.engine.registry import suggest_name
from wardround.predict.predictor import Predictor, read_predictor
from wardround.runs.models import find_model

Writer = Callable[[Path, Predictor, Path], str]
"""Writes the file; gives a sentence that says what to do with it."""


def export_command(run: Path, kind: str, *, method: str | None, site: str | None, out: Path, as_json: bool) -> None:
    """`export`: read the model, write it in another form, say how to use it."""
    if kind not in WRITERS:
        raise Refusal(f"there is no export to {kind!r}", where="--to", remedy=suggest_name(kind, tuple(WRITERS)))
    refuse_place(out)
    predictor = read_predictor(find_model(run, method, site), site)
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


def refuse_place(out: Path) -> None:
    if out.exists():
        raise Refusal("there is such a file already", where=str(out), remedy="choose another name, or remove it first")
    if not out.absolute().parent.is_dir():
        raise Refusal("there is no such folder", where=str(out.parent), remedy="make it, or choose another")


def write_onnx(out: Path, predictor: Predictor, run: Path) -> str:
    from wardround.export.onnx_model import onnx_bytes

    write_whole(out, onnx_bytes(predictor))
    takes = "the raw columns" if predictor.facts.preparation else "images"
    return f"It takes {takes}; made-up rows gave the model's predictions in onnxruntime."


def write_sklearn(out: Path, predictor: Predictor, run: Path) -> str:
    from wardround.export.sklearn_model import write_single

    write_single(out, predictor)
    return f"Use it in Python: from wardround.export.sklearn_model import sklearn_model; sklearn_model({str(out)!r})"


def write_calculator(out: Path, predictor: Predictor, run: Path) -> str:
    from wardround.export.calculator.page import calculator_page

    write_whole(out, calculator_page(predictor, run if run.is_dir() else None).encode())
    return "Open it in any browser; it needs no network and sends nothing."


WRITERS: dict[str, Writer] = {"onnx": write_onnx, "sklearn": write_sklearn, "calculator": write_calculator}
