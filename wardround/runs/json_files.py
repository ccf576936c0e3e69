"""JSON files that the program wrote: read with a refusal in words, written whole."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wardround.core.errors import Refusal
from wardround.core.files import write_whole


def as_json(value: Any) -> str:
    """JSON that is the same for the same content; NaN and infinity, which JSON lacks, become null."""

    def plain(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {str(key): plain(inner) for key, inner in part.items()}
        if isinstance(part, list | tuple):
            return [plain(inner) for inner in part]
        if isinstance(part, np.generic):
            return plain(part.item())
        if isinstance(part, float) and not np.isfinite(part):
            return None
        return part

    return json.dumps(plain(value), ensure_ascii=False)


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """An object that the program wrote."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise Refusal(f"there is no {path.name}", where=str(path.parent), remedy=remedy) from None
    except OSError as error:
        raise Refusal(
            f"{path.name} cannot be read: {error.strerror}", where=str(path), remedy="check its rights"
        ) from None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refusal(f"{path.name} is damaged", where=str(path), remedy="restore it from a copy")
    return value


def write_json(path: Path, value: Mapping[str, Any], *, wait: bool = True) -> None:
    write_file(path, (json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n").encode(), wait=wait)


def write_file(path: Path, content: bytes, *, wait: bool = True) -> None:
    """Replace a file as a whole, or refuse in words; with `wait` until it is on the disk."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content, wait=wait)
    except OSError as error:
        raise Refusal(
            f"{path.name} cannot be written: {error.strerror}", where=str(path), remedy="make room, or check its rights"
        ) from None
