"""`predict` with a model of images: a folder of images in, a table out, and of a model of masks a folder of them."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import typer

from wardround.core.errors import Refusal
from wardround.core.text import counted
from wardround.predict.image_masks import MarkedImage, mark_images
from wardround.predict.image_outcomes import predict_images
from wardround.predict.predictor import Predictor
from wardround.queries.columns import list_some

if TYPE_CHECKING:
    from wardround.cli.models.predict import Wanted

TABLE = "masks.csv"


def predict_masks(predictor: Predictor, wanted: "Wanted") -> None:
    """Mark every image of a folder; masks are written where --out names a folder."""
    images = mark_images(predictor, folder_of(wanted), wanted.settings)
    lines = [line_of(one) for one in images] if wanted.out is None else write_masks(images, wanted.out)
    tell(predictor, lines, wanted)


def predict_labels(predictor: Predictor, wanted: "Wanted") -> None:
    """The outcome of every image of a folder, as a table."""
    from wardround.cli.models.predict import deliver, refuse_folder

    folder = folder_of(wanted)
    if wanted.out is not None:
        refuse_folder(wanted.out)
    deliver(predictor, predict_images(predictor, folder, wanted.settings), wanted)


def folder_of(wanted: "Wanted") -> Path:
    if wanted.explain or wanted.page or wanted.query or wanted.keep:
        raise Refusal(
            "a model of images reads a folder of images, which has no columns to keep, query or explain",
            where=wanted.patients,
            remedy="leave out --explain, --page, --query and --keep",
        )
    folder = Path(wanted.patients).expanduser()
    if not folder.is_dir():
        raise Refusal(
            "a model of images reads a folder of images, and this is none", where=str(folder), remedy="name a folder"
        )
    return folder


def line_of(one: MarkedImage) -> dict[str, Any]:
    return {"file": one.file, "marked pixels": one.marked, "share": one.share, "problem": one.problem}


def write_masks(images: Iterable[MarkedImage], out: Path) -> list[dict[str, Any]]:
    """The whole folder or nothing: a PNG for every image, in the same place, and a table of them."""
    from PIL import Image

    if (out.exists() and (not out.is_dir() or any(out.iterdir()))) or not out.parent.is_dir():
        raise Refusal(
            "masks are written into a new folder, and this is a file, or not empty, or its folder does not exist",
            where=str(out),
            remedy="name a folder that does not exist yet, in one that does",
        )
    lines, fresh = [], Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        for one in images:
            lines.append(line_of(one))
            if one.mask is not None:
                place = (fresh / one.file).with_suffix(".png")
                place = fresh / f"{one.file}.png" if place.exists() else place  # beside one of another suffix
                place.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(one.mask).save(place)
        pd.DataFrame(lines).to_csv(fresh / TABLE, index=False)
        os.replace(fresh, out)
    except OSError as error:
        raise Refusal(
            f"the masks cannot be written: {error.strerror}", where=str(out), remedy="choose another folder"
        ) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return lines


def tell(predictor: Predictor, lines: list[dict[str, Any]], wanted: "Wanted") -> None:
    from wardround.cli.models.predict import facts_of, model_words, print_table

    table = pd.DataFrame(lines)
    if wanted.as_json:
        typer.echo(json.dumps(facts_of(predictor, table)))
        return
    readable, left_out = count_readable(table["file"], table["problem"])
    made = f"{readable} marked by {model_words(predictor)}.{left_out}"
    if wanted.out is not None:
        typer.echo(f"{made} Written to {wanted.out}.")
    elif sys.stdout.isatty():
        print_table(table)
        typer.echo(made)
    else:
        typer.echo(table.to_csv(index=False), nl=False)


def count_readable(files: Iterable[str], problems: Iterable[str]) -> tuple[str, str]:
    """How many images could be read, and a sentence about those that could not."""
    told = list(zip(files, problems, strict=True))
    broken = [f"{file}: {problem}" for file, problem in told if problem]
    left_out = f" Left out, not readable: {counted(len(broken), 'file')} ({list_some(broken)})." if broken else ""
    return counted(len(told) - len(broken), "image"), left_out
