"""A trained model as a file that can be used: parameters, and beside them all that a prediction needs.

The file is in the open format safetensors. Its one header word holds JSON: what is predicted, the fitted preparation
(fills, categories, scales, ranges), and the recipe by which installed components make
the model again. Personal models of several sites are one file, the sites along the first axis of every array.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from wardround.core.contracts import Tree
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.runs.json_files import as_json
from wardround.runs.sites import PredictionTask

FORMAT = 1
HEADER = "wardround"
BETWEEN = "::"
"""Joins the names of nested parameters."""


class ModelFacts(BaseModel):
    """All that a prediction needs beside the parameters."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    format: int = FORMAT
    wardround: str
    """The version that wrote it."""
    study: str
    method: str
    label: str
    """The method as readers call it."""
    rounds: int
    task: PredictionTask
    shape: tuple[int, ...]
    """Of one prepared row."""
    recipe: dict[str, Any] | None
    """How installed components make the algorithm; none where it was made in Python."""
    preparation: dict[str, Any] | None
    """How columns become numbers; none where rows come as arrays."""
    reading: dict[str, Any] = {}
    """How the table was read: words for missing values, columns that are categories."""
    site_column: str = ""
    """Which column of the training table named a patient's site, where one did."""
    units: dict[str, str] = {}
    """Of columns and the target, where the study says them."""
    threshold: float = 0.5
    """Of two classes, the probability from which a patient counts as positive."""
    sites: tuple[str, ...] = ()
    """Whose personal models these are; empty where the model is everybody's."""
    packages: dict[str, str] = {}
    """Components from elsewhere that it needs, with their versions."""
    digest: str = ""
    """SHA-256 over the parameters."""


def write_model(path: Path, params: Tree, facts: ModelFacts) -> None:
    """Write the file whole; the same model gives the same bytes."""
    arrays = {name: np.ascontiguousarray(array) for name, array in flatten(jax.device_get(params)).items()}
    content = facts.model_copy(update={"digest": digest_of(arrays)}).model_dump(mode="json")
    # One key: safetensors writes several in an order of its own.
    write_whole(path, save(arrays, metadata={HEADER: as_json(content)}))


def read_facts(path: Path) -> ModelFacts:
    """The header alone."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = (file.metadata() or {}).get(HEADER, "")
        return ModelFacts.model_validate(known_content(header, path))
    except FileNotFoundError:
        raise Refusal("there is no such model file", where=str(path), remedy="check the path") from None
    except (OSError, SafetensorError) as error:
        raise damaged(path, str(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        words = f"its header lacks what a prediction needs ({'.'.join(map(str, first['loc']))}: {first['msg']})"
        raise damaged(path, words) from None


def known_content(header: str, path: Path) -> dict[str, Any]:
    """What the header holds, where this version can read it."""
    try:
        content = json.loads(header)
    except ValueError:
        content = None
    if not isinstance(content, dict) or "format" not in content:
        raise Refusal(
            "this model file holds parameters only: an older version of wardround wrote it, or another program",
            where=str(path),
            remedy="run the study again with this version, which keeps all that a prediction needs",
        )
    if not isinstance(content["format"], int) or content["format"] > FORMAT:
        raise Refusal(
            f"this model file has format {content['format']}, and this version reads up to {FORMAT}",
            where=str(path),
            remedy=f"install wardround {content.get('wardround', '')} or later".replace("  ", " "),
        )
    return content


def read_model(path: Path) -> tuple[ModelFacts, Tree]:
    """The facts and the parameters; a file that was changed or cut is refused by name."""
    facts = read_facts(path)
    try:
        with safe_open(str(path), framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise damaged(path, str(error)) from None
    if digest_of(arrays) != facts.digest:
        raise damaged(path, "its parameters are not those that were written")
    return facts, unflatten(arrays)


def damaged(path: Path, why: str) -> Refusal:
    return Refusal(
        f"the model file is damaged, or none: {why}",
        where=str(path),
        remedy="restore it from a copy, or run the study again",
    )


def digest_of(arrays: Mapping[str, Any]) -> str:
    found = sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(as_json([name, array.dtype.str, list(array.shape)]).encode())
        found.update(array.data)
    return found.hexdigest()


def flatten(params: Tree, before: str = "") -> dict[str, Any]:
    """Nested parameters under one name each.

    >>> flatten({"own": {"dense_0/bias": 1.0}, "share": 0.5})
    {'own::dense_0/bias': 1.0, 'share': 0.5}
    """
    found: dict[str, Any] = {}
    for name, part in params.items():
        found |= flatten(part, f"{before}{name}{BETWEEN}") if isinstance(part, Mapping) else {f"{before}{name}": part}
    return found


def unflatten(arrays: Mapping[str, Any]) -> Tree:
    """
    >>> unflatten({"own::dense_0/bias": 1.0, "share": 0.5})
    {'own': {'dense_0/bias': 1.0}, 'share': 0.5}
    """
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        *path, last = name.split(BETWEEN)
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = array
    return found
