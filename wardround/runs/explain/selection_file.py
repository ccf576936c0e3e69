"""What `predict` follows at a site: the rules, whose classifier each names, and the files of the classifiers.

Nothing about single patients: rules, thresholds and classifiers only. A folder with `selection.json` and one ONNX file
for each classifier. Where a threshold of competence is followed, the site's validation patients are needed, prepared
and with each classifier's loss: `neighbours.safetensors` holds rows about patients and stays at the site.
"""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wardround.core.errors import Refusal
from wardround.runs.file_names import SELECTION
from wardround.runs.json_files import read_json, write_file
from wardround.runs.model_file import ModelFacts

FORMAT = 2
NAME = "selection.json"
KEPT = "kept"
"""The folder, in that of a study at a site, of what the site keeps of an analysis for itself."""


class CompetenceThreshold(BaseModel):
    """Above which competence among its nearest known patients another classifier decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: float
    k: int = Field(ge=1)
    epsilon: float
    pick: str
    """competence or score: who decides where several are competent."""
    sources: tuple[str, ...]
    """The others, in the order of the file's losses."""
    preparation: dict[str, Any]
    """How columns become the numbers between which distances are taken."""
    file: str


class Selection(BaseModel):
    """A site's own classifier, the others' that its rules name, and the rules in order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    site: str
    study: str
    point: str
    """The operating point, in words."""
    facts: ModelFacts
    """How tables are read, and what is predicted."""
    columns: dict[str, str]
    """"number" or "category", by column."""
    thresholds: dict[str, float]
    """From which risk on each classifier says yes, by site."""
    files: dict[str, str]
    """The file of each classifier, by site."""
    rules: tuple[dict[str, Any], ...]
    """Those that are followed: conditions and source."""
    words: tuple[str, ...]
    """The same in words."""
    strategy: str = "rules"
    """What test patients confirmed and is followed: rules, hybrid (rules, then the threshold) or threshold."""
    threshold: CompetenceThreshold | None = None
    unfollowed: str = ""
    """Why a confirmed strategy is not followed."""


def classifier_file(site: str) -> str:
    """
    >>> classifier_file("St. Mary/West")
    'St.%20Mary%2FWest.onnx'
    """
    return f"{quote(site, safe='')}.onnx"


def site_folder(run: Path, site: str) -> Path:
    return run / SELECTION / quote(site, safe="")


def write_selection(
    folder: Path, selection: Selection, classifiers: dict[str, bytes], neighbours: bytes | None = None
) -> None:
    """The file, the classifiers that it names, and the known patients where a threshold needs them."""
    folder.mkdir(parents=True, exist_ok=True)
    if selection.threshold is not None and neighbours is not None:
        write_file(folder / selection.threshold.file, neighbours)
        (folder / selection.threshold.file).chmod(0o600)
    for site, content in classifiers.items():
        write_file(folder / selection.files[site], content)
    write_file(folder / NAME, selection_bytes(selection))


def selection_bytes(selection: Selection) -> bytes:
    """The content of the file."""
    return (json.dumps(selection.model_dump(mode="json"), ensure_ascii=False) + "\n").encode()


def has_selection(run: Path) -> bool:
    """Whether a folder is one of `explain`."""
    return (run / SELECTION).is_dir() or (run / NAME).is_file()


def find_selection(run: Path, site: str | None) -> Path:
    """The folder of a site's choice in the run folder of `explain`, or the folder itself."""
    if (run / NAME).is_file():
        return run
    named = {one.name: one for one in sorted((run / SELECTION).iterdir()) if (one / NAME).is_file()}
    if not named:
        raise Refusal("no site chose anything here", where=str(run), remedy="run `wardround explain` again")
    if site is None and len(named) == 1:
        return next(iter(named.values()))
    from urllib.parse import unquote

    known = ", ".join(unquote(name) for name in named)
    if site is None:
        raise Refusal("every site has rules of its own here", where=str(run), remedy=f"say whose with --site: {known}")
    if quote(site, safe="") not in named:
        raise Refusal(f"there are no rules of {site}", where=str(run), remedy=f"name one of {known} with --site")
    return named[quote(site, safe="")]


def read_selection(folder: Path) -> Selection:
    found = read_json(folder / NAME, "run `wardround explain` again")
    try:
        selection = Selection.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        raise Refusal(
            f"{NAME} is damaged ({'.'.join(map(str, first['loc']))}: {first['msg']})",
            where=str(folder / NAME),
            remedy="restore it from a copy, or run `wardround explain` again",
        ) from None
    if selection.format > FORMAT:
        raise Refusal(
            f"{NAME} has format {selection.format}, and this version reads up to {FORMAT}",
            where=str(folder / NAME),
            remedy="install a newer version of wardround",
        )
    return selection
