"""Labeling functions in a JSON file: a list of names and settings, written whole and read with every mistake named."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.weak_supervision.function import LabelingFunction, function_from, to_words

FORMAT = "wardround labeling functions 1"


def write_functions(path: Path, functions: Sequence[LabelingFunction]) -> None:
    content = {"format": FORMAT, "functions": [to_words(one) for one in functions]}
    write_whole(path, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())


def read_functions(path: Path) -> list[LabelingFunction]:
    return [function_from(one, f"{path}, function {place}") for place, one in enumerate(function_words(path), 1)]


def function_words(path: Path) -> list[dict[str, Any]]:
    """The words of every function in the file, not yet checked one by one."""
    remedy = "use a file that `wardround label` wrote, or write its format by hand"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refusal("there is no such file of labeling functions", where=str(path), remedy="check the path") from None
    except (OSError, ValueError) as error:
        raise Refusal(f"the file cannot be read ({error})", where=str(path), remedy=remedy) from None
    found = content.get("functions") if isinstance(content, dict) else None
    if (
        not isinstance(found, list)
        or content.get("format") != FORMAT
        or not all(isinstance(one, dict) for one in found)
    ):
        raise Refusal("this is no file of labeling functions", where=str(path), remedy=remedy)
    words: list[dict[str, Any]] = found
    return words
