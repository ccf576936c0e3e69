"""Field types of the result: checked when a result is made, forgiving when one is read.

A workflow that gives a part a wrong value is a mistake of ours and raises. A file may be older, newer, short or edited
by hand: read with `TOLERANT` as context, a value of the wrong kind becomes an empty one, and a key that is missing
counts as empty. Nothing is made up: an unknown number is None.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, WithJsonSchema, model_validator

Json = Mapping[str, Any]
TOLERANT = {"tolerant": True}
"""The context for reading files."""


def number(value: object) -> float | None:
    """A finite number, or None."""
    found = finite(value)
    return None if found is None else float(found)


def finite(value: object) -> int | float | None:
    """A finite number as it is, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer of more digits than a float can hold
        return None


def whole(value: object) -> int | None:
    found = finite(value)
    return None if found is None else round(found)


def mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def sentences(value: object) -> tuple[str, ...]:
    """Text from a list or a single string."""
    if isinstance(value, str):
        return (value,)
    return tuple(entry if isinstance(entry, str) else str(entry) for entry in items(value))


def total(values: Sequence[float | None]) -> float | None:
    """The sum of those that are known; None when none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def lenient(convert: Callable[[Any], Any]) -> BeforeValidator:
    """Convert what a file holds; what a workflow gives is left for the check that follows."""

    def before(value: Any, info: ValidationInfo) -> Any:
        return convert(value) if info.context is TOLERANT else value

    return BeforeValidator(before)


Value = TypeVar("Value")
Number = Annotated[int | float | None, lenient(finite), WithJsonSchema({"type": ["number", "null"]})]
Whole = Annotated[int | None, lenient(whole), WithJsonSchema({"type": ["integer", "null"]})]
Text = Annotated[str, lenient(lambda value: str(value or ""))]
Name = Annotated[str | None, lenient(lambda value: None if value is None else str(value))]
Flag = Annotated[bool, lenient(lambda value: value is True)]
YesNo = Annotated[bool | None, lenient(lambda value: value if isinstance(value, bool) else None)]
Texts = Annotated[tuple[str, ...], lenient(sentences)]
Names = Annotated[tuple[str, ...] | None, lenient(lambda value: None if value is None else sentences(value))]
Table = Annotated[dict[str, Any], lenient(mapping)]
Many = Annotated[tuple[Value, ...], lenient(items)]
ByName = Annotated[dict[str, Value], lenient(mapping)]


class ResultPart(BaseModel):
    """A part of the result: frozen; keys of a newer version are kept and can be listed."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def fill(cls, data: Any, info: ValidationInfo) -> Any:
        """What a file lacks counts as empty; what a workflow lacks is refused."""
        if info.context is not TOLERANT:
            return data
        found = dict(cls.normalize(data))
        absent = (field.alias or name for name, field in cls.model_fields.items() if field.is_required())
        return {**dict.fromkeys(key for key in absent if key not in found), **found}

    @classmethod
    def normalize(cls, data: Any) -> Json:
        """What a file tells of this part, where it may tell it in another form."""
        return mapping(data)

    def plain(self) -> dict[str, Any]:
        """As the file holds it: only the keys that were given, in their order."""
        return self.model_dump(by_alias=True, exclude_unset=True)


Part = TypeVar("Part", bound=ResultPart)


def part_of(sort: type[Part], words: Json) -> Part:
    """A part from a table that a workflow worked out; a wrong value in it raises."""
    return sort.model_validate(words)


def unknown_keys(part: object, at: str = "") -> list[str]:
    """Keys that this version knows nothing of, by their place, each place once."""
    if isinstance(part, ResultPart):
        typed = type(part).__annotations__.get("__pydantic_extra__")
        further = part.model_extra or {}
        own = [] if typed else [f"{at}{key}" for key in further]
        inner = {**{name: getattr(part, name) for name in type(part).model_fields}, **(further if typed else {})}
        below = [found for key in inner for found in unknown_keys(inner[key], f"{at}{key}.")]
        return list(dict.fromkeys([*own, *below]))
    if isinstance(part, dict):
        return list(dict.fromkeys(found for one in part.values() for found in unknown_keys(one, at)))
    if isinstance(part, tuple):
        return list(dict.fromkeys(found for one in part for found in unknown_keys(one, at)))
    return []
