"""The contract of a labeling function: a rule that votes for its class where it fires, and abstains elsewhere.

A function is plain words and numbers, so it travels as JSON; votes are found for all functions of a kind at once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.core.components.recipes import hashable
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.queries.columns import suggest_name

Values = np.ndarray[Any, Any]
KIND = "labeling_function"


class LabelingFunction(NamedTuple):
    """One rule. `given` are the settings that its kind, a component of that name, made it from."""

    kind: str
    label: str
    """The class it votes for."""
    columns: tuple[str, ...]
    """What it reads of a table."""
    given: tuple[tuple[str, Any], ...]
    words: str
    """When it fires, to go on after "votes for LABEL where ..."."""
    fires: Callable[[Sequence["LabelingFunction"], pd.DataFrame], Values]
    """Of functions of this kind that read the same columns: a flag for every row and function."""

    @property
    def sentence(self) -> str:
        return f"{self.label} where {self.words}"


def function_from(words: Mapping[str, Any], where: str = "") -> LabelingFunction:
    """From its name and settings, as a study file or a file of functions says them; refused where it is none."""
    said = dict(words)
    name = said.pop("name", None)
    if not isinstance(name, str):
        raise Refusal("a labeling function does not say its kind", where=where, remedy='add name = "unigram"')
    made: LabelingFunction = registry.find(KIND, name, where=where).build(where=where, **said)
    return made


def to_words(function: LabelingFunction) -> dict[str, Any]:
    """Its name and settings, as plain values that JSON and a study file can hold."""
    return {"name": function.kind, **{key: as_list(value) for key, value in function.given}}


def as_list(value: Any) -> Any:
    return [as_list(one) for one in value] if isinstance(value, tuple) else value


def settings(**given: Any) -> tuple[tuple[str, Any], ...]:
    """What a function was made from, in the form in which it is kept."""
    return tuple((key, hashable(value)) for key, value in given.items())


def votes_of(functions: Sequence[LabelingFunction], frame: pd.DataFrame, where: str = "") -> Values:
    """A flag for every row and function: whether it fires. Missing values never make one fire."""
    found = np.zeros((len(frame), len(functions)), bool)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, function in enumerate(functions):
        for column in function.columns:
            if column not in frame.columns:
                raise Refusal(
                    f"a labeling function reads column {column!r}, which is missing; "
                    f"{suggest_name(column, map(str, frame.columns))}",
                    where=where,
                    remedy="correct the function, or add the column",
                )
        groups.setdefault((function.kind, function.columns), []).append(place)
    for places in groups.values():
        found[:, places] = functions[places[0]].fires([functions[place] for place in places], frame)
    return found
