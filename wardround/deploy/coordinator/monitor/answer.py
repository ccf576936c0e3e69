"""What a site may answer to a monitor: windows of the calendar in order, counts in cells, mean risks from 0 to 1."""

import re
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from wardround.core.codes.json_arrays import unpack
from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Message
from wardround.deploy.protocol.reply_form import LARGEST_CELL, MOST_ROWS
from wardround.queries.outcomes_by_window import ALL, FIGURES

FORMS = {"month": r"\d{4}-(0[1-9]|1[0-2])", "quarter": r"\d{4}-Q[1-4]", "year": r"\d{4}"}
LONGEST = 16
"""Bytes that the name of a window takes at most."""
NAMES = TypeAdapter(list[str])
Numbers = np.ndarray[Any, Any]


def windows_problem(answer: Message, recipe: Recipe, site: str, least: int) -> str | None:
    """Why an answer to `outcomes_by_window` is none; what this raises is the answer's fault, too."""
    said, arrays = dict(recipe.settings), {name: np.asarray(one) for name, one in answer.arrays.items()}
    if set(arrays) != {"site", "cell", "windows", *FIGURES} or unpack(arrays["site"]) != site:
        return "it does not tell windows of this site"
    cell, most = arrays["cell"], int(said["most"])
    if cell.shape != () or cell.dtype != np.int64 or not said["smallest_cell"] <= int(cell) <= LARGEST_CELL:
        return "it counts in cells that are smaller than was asked for, or in none"
    if arrays["windows"].size > LONGEST * (most + 2):
        return f"it tells of more windows than {most}"
    windows = NAMES.validate_json(arrays["windows"].tobytes(), strict=True)
    form, single = re.compile(FORMS[said["every"]]), [one for one in windows if one != ALL]
    in_order = windows == sorted(set(single)) + ([ALL] if len(single) > 1 else [])
    if len(single) > most or not in_order or not all(form.fullmatch(one) for one in single):
        return f"its windows are no {said['every']}s of the calendar in their order, or more than {most}"
    return figures_problem(arrays, len(windows), int(cell))


def figures_problem(arrays: dict[str, Numbers], windows: int, cell: int) -> str | None:
    for name in FIGURES:
        if arrays[name].shape != (windows,) or arrays[name].dtype != (np.float64 if name == "risk" else np.int64):
            return f"'{name}' does not hold a number for every window"
    patients, risk, observed = (arrays[name] for name in FIGURES)
    counts = np.concatenate([patients, observed])
    if np.any(patients < cell) or np.any(counts > MOST_ROWS) or np.any(counts % cell) or np.any(observed < 0):
        return "its counts are no numbers of patients in its cells"
    if np.any(observed > patients) or not np.all((risk >= 0) & (risk <= 1)):
        return "more patients have the outcome than there are, or a mean risk is not between 0 and 1"
    return None
