"""A run's state on disk: written whole or not at all, read back bit for bit.

Arrays go into one safetensors file, with a small JSON header; temp file, fsync, rename, fsync of the folder, so that a
crash at any point leaves the last complete checkpoint.
"""

import json
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
    write_whole(path, save(arrays, metadata={HEADER: json.dumps(header)}))


def read_header(path: Path) -> dict[str, Any]:
    try:
        with safe_open(str(path), framework="numpy") as file:
            header: dict[str, Any] = json.loads(file.metadata()[HEADER])
            return header
    except (OSError, SafetensorError, KeyError, TypeError, json.JSONDecodeError):
        raise Refusal(
            "this is not a checkpoint that can be read",
            where=str(path),
            remedy="start the run anew in another folder, or restore the file",
        ) from None


def read_checkpoint(path: Path, template: Tree) -> tuple[Tree, dict[str, Any]]:
    """The state in the shape of `template`, and the header; refuses a checkpoint of another study."""
    header = read_header(path)
    leaves, structure = jax.tree.flatten(template)
    with safe_open(str(path), framework="numpy") as file:
        stored = set(file.keys())
        restored = []
        for name, leaf in zip(names_of(template), leaves, strict=True):
            array = file.get_tensor(name) if name in stored else None
            if array is None or array.shape != np.shape(leaf) or array.dtype != leaf.dtype:
                raise Refusal(
                    f"the checkpoint does not fit this study: '{name}' is missing or has another shape",
                    where=str(path),
                    remedy="resume with the study file the run was started with",
                )
            restored.append(jax.numpy.asarray(array))
    return jax.tree.unflatten(structure, restored), header
