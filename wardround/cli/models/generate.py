"""`wardround generate`: images with masks drawn by a trained generator. Imports are inside, so help loads nothing."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.output import AsJson
from wardround.core.errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wardround.predict.made_images import MadeImage


def generate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a model file.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write, which must not exist yet.")],
    images: Annotated[int, typer.Option("--images", min=1, help="How many of each site's style.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Other seeds give other images.")] = 0,
    method: Annotated[str | None, typer.Option("--method", help="Whose model, where a run compared methods.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw images with masks by a trained generator, as a folder that a study of images can read."""
    from wardround.predict.made_images import draw_images
    from wardround.predict.predictor import load_predictor

    if out.exists() or not out.parent.is_dir():
        raise Refusal(
            "images are written into a new folder, and this exists, or the folder around it does not",
            where=str(out),
            remedy="name a folder that does not exist yet, in one that does",
        )
    styles = write_images(draw_images(load_predictor(run, method), images, seed), out)
    written = images * styles
    if as_json:
        typer.echo(json.dumps({"folder": str(out), "images": written, "styles": styles, "seed": seed}))
        return
    typer.echo(
        f"{written} images with masks in {styles} styles written to {out}. They are nobody's, but may resemble images "
        'that the generator learned from. A study reads them with source = "images", layout = "site/frame", '
        'masks = "masks", target = "mask".'
    )


def write_images(drawn: "Iterable[MadeImage]", out: Path) -> int:
    """The whole folder or nothing: style/number.png and masks/style/number.png; how many styles there are."""
    from PIL import Image

    fresh, numbers = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent)), dict[int, int]()
    try:
        for one in drawn:
            numbers[one.style] = numbers.get(one.style, 0) + 1
            place = Path(f"style_{one.style}", f"{numbers[one.style]:05d}.png")
            grey = one.image[..., 0] if one.image.shape[-1] == 1 else one.image
            for folder, pixels in ((fresh, grey), (fresh / "masks", one.mask)):
                (folder / place).parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(folder / place)
        os.replace(fresh, out)
    except OSError as error:
        raise Refusal(
            f"the images cannot be written: {error.strerror}", where=str(out), remedy="choose another folder"
        ) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return len(numbers)
