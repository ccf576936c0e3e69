"""Settings from a study file against the types of a factory's own signature."""

import inspect
import types
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from wardround.core.bounds import Bound, SiteNumbers
from wardround.core.errors import Refusal


def check_value(key: str, value: Any, annotation: Any, place: str) -> Any:
    """The value in the annotated type, or a refusal that says what was expected."""
    bounds: tuple[Any, ...] = ()
    if get_origin(annotation) is Annotated:
        annotation, *rest = get_args(annotation)
        bounds = tuple(rest)
    if isinstance(value, dict) and SiteNumbers() in bounds:  # by the sites' names, which are looked up later
        wrong = [name for name, one in value.items() if not convert(one, float)[0]]
        if wrong:
            raise Refusal(f"'{key}' must have a number for {wrong[0]}", where=place, remedy="correct the value")
        return value
    fits, value = convert(value, annotation)
    if not fits:
        raise Refusal(
            f"'{key}' must be {type_text(annotation)}, not {value!r}", where=place, remedy="correct the value"
        )
    for bound in bounds:
        if isinstance(bound, Bound) and value is not None and not bound.is_met(value):
            raise Refusal(f"'{key}' must be {bound}, not {value!r}", where=place, remedy="correct the value")
    if any(not isfinite(one) for one in (value if SiteNumbers() in bounds else [value]) if isinstance(one, float)):
        raise Refusal(f"'{key}' must be a finite number, not {value!r}", where=place, remedy="correct the value")
    if SiteNumbers() in bounds and any(one < 0 for one in value):
        raise Refusal(f"'{key}' must not be below 0, not {value!r}", where=place, remedy="correct the value")
    return value


def convert(value: Any, annotation: Any) -> tuple[bool, Any]:  # noqa: PLR0911 - one line a kind of type
    """Whether a value from a TOML file is of the annotated type, and the value in it."""
    if annotation is Any:
        return True, value
    origin = get_origin(annotation)
    if origin is Annotated:
        fits, converted = convert(value, get_args(annotation)[0])
        return fits and all(b.is_met(converted) for b in get_args(annotation)[1:] if isinstance(b, Bound)), converted
    if origin in (Union, types.UnionType):
        options = (convert(value, option) for option in get_args(annotation))
        return next(((True, converted) for fits, converted in options if fits), (False, value))
    if origin is Literal:
        return value in get_args(annotation), value
    if origin in (tuple, list) or annotation in (tuple, list):
        if not isinstance(value, list | tuple):
            return False, value
        inner = (get_args(annotation) or (Any,))[0]
        parts = [convert(part, inner) for part in value]
        kind = tuple if (origin or annotation) is tuple else list
        return all(fits for fits, _ in parts), kind(part for _, part in parts)
    if origin in (dict, Mapping) or annotation is dict or getattr(origin, "__name__", "") == "Mapping":
        return isinstance(value, dict), value
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool), value
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    if annotation is None or annotation is type(None):
        return value is None, value
    if inspect.isclass(annotation):
        return isinstance(value, annotation), value
    return True, value


def type_text(annotation: Any) -> str:
    """A type as a person would say it."""
    words = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
    origin = get_origin(annotation)
    if annotation in words:
        return words[annotation]
    if origin is Literal:
        return "one of " + ", ".join(repr(option) for option in get_args(annotation))
    if origin is Annotated:
        bound = " ".join(str(b) for b in get_args(annotation)[1:])
        return f"{type_text(get_args(annotation)[0])} {bound}"
    if origin in (tuple, list):
        return f"a list of {type_text((get_args(annotation) or (Any,))[0]).removeprefix('a ')}s"
    if origin in (Union, types.UnionType):
        options = [type_text(option) for option in get_args(annotation) if option is not type(None)]
        return " or ".join(options)
    return str(getattr(annotation, "__name__", annotation))
