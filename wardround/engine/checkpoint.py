"""A run's state on disk: written whole or not at all, read back bit for bit.

Arrays go into one safetensors file, with a small JSON header; temp file, fsync, rename, fsync of the folder, so that a
crash at any point leaves the last complete checkpoint. The one before is kept beside it (`.before`): should a disk have
damaged the last one, which its hash tells, the run goes on from there.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from wardround.core.contracts import Tree
from wardround.core.errors import Refusal
from wardround.core.files import write_whole

__all__ = ["names_of", "read_checkpoint", "read_header", "write_checkpoint", "write_whole"]

HEADER = "wardround"


def names_of(tree: Tree) -> list[str]:
    """A readable name for every array of a nest, unique by construction."""
    return [jax.tree_util.keystr(path) or "value" for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def write_checkpoint(path: Path, tree: Tree, header: Mapping[str, Any]) -> None:
    # Not ascontiguousarray, which would make a scalar one-dimensional.
    leaves = [np.asarray(leaf, order="C") for leaf in jax.tree.leaves(jax.device_get(tree))]
    arrays = dict(zip(names_of(tree), leaves, strict=True))
    words = {"header": header, "sha256": digest_of(arrays, header)}
    content = save(arrays, metadata={HEADER: json.dumps(words)})
    keep_previous(path)
    write_whole(path, content)


def digest_of(arrays: Mapping[str, np.ndarray[Any, Any]], header: Mapping[str, Any]) -> str:
    """The hash of all that a checkpoint holds."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def previous_path(path: Path) -> Path:
    """Where the checkpoint before the last one is kept."""
    return path.with_name(path.name + ".before")


def keep_previous(path: Path) -> None:
    """Give the last checkpoint a second name, which takes no room; a crash in here leaves the last one as it is."""
    if not path.exists():
        return
    previous_path(path).unlink(missing_ok=True)
    try:
        previous_path(path).hardlink_to(path)
    except OSError:  # a file system without second names
        shutil.copyfile(path, previous_path(path))


def read_contents(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]] | None:
    """Arrays and header, none where the file is torn, damaged, or no checkpoint."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            words = json.loads(file.metadata()[HEADER])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
            header: dict[str, Any] = words["header"]
            return (arrays, header) if digest_of(arrays, header) == words["sha256"] else None
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def read_newest(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """The last checkpoint, or the one before where the last is damaged; refused where neither can be read."""
    found = read_contents(path) or (read_contents(previous_path(path)) if path.exists() else None)
    if found is None:
        raise Refusal(
            "the checkpoint cannot be read",
            where=str(path),
            remedy="start the run again in another folder, or restore the file",
        )
    return found


def read_header(path: Path) -> dict[str, Any]:
    return read_newest(path)[1]


def read_checkpoint(path: Path, template: Tree) -> tuple[Tree, dict[str, Any]]:
    """The state in the shape of `template`, and the header; refuses a checkpoint of another study."""
    stored, header = read_newest(path)
    leaves, structure = jax.tree.flatten(template)
    restored = []
    for name, leaf in zip(names_of(template), leaves, strict=True):
        array = stored.get(name)
        if array is None or array.shape != np.shape(leaf) or array.dtype != leaf.dtype:
            raise Refusal(
                f"the checkpoint does not fit this study: '{name}' is missing or has another shape",
                where=str(path),
                remedy="resume with the study file the run was started with",
            )
        restored.append(jax.numpy.asarray(array))
    return jax.tree.unflatten(structure, restored), header
