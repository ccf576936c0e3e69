"""Results as plain values, and plain values as results."""

import json
from typing import Any

from wardround.runs.folder import as_json
from wardround.runs.read import parse_result
from wardround.runs.result import Result, values_of


def plain(result: Result) -> dict[str, Any]:
    """The result as somebody reads it from the file."""
    return json.loads(as_json(values_of(result)))


def parsed(values: dict[str, Any], kind: str = "") -> Any:
    """What the reader makes of these values."""
    return parse_result({**({"kind": kind} if kind else {}), **values}).result
