"""Files of a home as people write them: TOML, checked key by key."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from wardround.core.errors import Refusal

BARE = re.compile(r"[A-Za-z0-9_-]+")
"""Keys that TOML wants no quotes around."""


class SettingsFile(BaseModel):
    """A TOML file of a home; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Sort = TypeVar("Sort", bound=BaseModel)


def read_toml(path: Path, sort: type[Sort], remedy: str) -> Sort:
    """A TOML file as what it should be; a mistake is told with the file, the key and the nearest known key."""
    return validate(load_toml(path, remedy), sort, str(path))


def load_toml(path: Path, remedy: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refusal(f"there is no {path.name}", where=str(path.parent), remedy=remedy) from None
    except OSError as error:
        raise Refusal(
            f"{path.name} cannot be read: {error.strerror}", where=str(path), remedy="check its permissions"
        ) from None
    except UnicodeDecodeError:
        raise Refusal(f"{path.name} is not UTF-8 text", where=str(path), remedy="save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise Refusal(f"{path.name} is not valid TOML: {error}", where=str(path), remedy="correct that line") from None


def validate(content: Mapping[str, Any], sort: type[Sort], where: str) -> Sort:
    try:
        return sort.model_validate(content)
    except ValidationError as error:
        # A misspelt key is also a missing one, and its right spelling helps more.
        first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            from wardround.engine.registry import suggest_name  # loads JAX, which only this mistake needs

            remedy = suggest_name(key, tuple(sort.model_fields))
            raise Refusal(f"unknown key '{key}'", where=where, remedy=remedy) from None
        if first["type"] == "missing":
            raise Refusal(f"the key '{key}' is missing", where=where, remedy=f"add {key} = ...") from None
        why = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        given = "" if first["type"] == "value_error" else f" {first['input']!r}"
        raise Refusal(f"'{key}' cannot be{given}: {why}", where=where, remedy="correct the value") from None


def toml_text(value: Any) -> str:
    """A value as TOML writes it.

    >>> print(toml_text(["a", 1.5, True, "line\\n"]))
    ["a", 1.5, true, "line\\n"]
    """
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_text(part) for part in value) + "]"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which JSON leaves bare.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return str(value.isoformat())


def toml_lines(words: Mapping[str, Any]) -> str:
    return "".join(f"{key if BARE.fullmatch(key) else toml_text(key)} = {toml_text(words[key])}\n" for key in words)
