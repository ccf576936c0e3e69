"""Finds components by crawling their rooms: a module's name is its factory's name is its key in a study file.

Installed packages can add components of their own through entry points of the group "wardround.KIND".
"""

import importlib
import inspect
import pkgutil
import types
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from wardround.core.bounds import Bound
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.recipes import RECORDED, Recipe, hashable, recipe_of, remember

ROOMS: Mapping[str, str] = {
    "algorithm": "wardround.algorithms",
    "aggregator": "wardround.aggregators",
    "model": "wardround.models",
    "transform": "wardround.transforms",
    "meter": "wardround.meters",
    "source": "wardround.data.sources",
    "dataset": "wardround.data.datasets",
    "partition": "wardround.data.partitions",
    "choice": "wardround.partners.choices",
    "probe": "wardround.partners.probes",
}


QUERIES = (
    "wardround.data.statistics",
    "wardround.data.schema",
    "wardround.partners.similarity.histograms",
    "wardround.partners.probes.feature_gains",
)
"""Modules with questions to sites (factories recorded as "query"); only these can be asked of a real site."""


class Parameter(NamedTuple):
    """A hyper-parameter: its name, its type as annotated, and its default (`required` when it has none)."""

    name: str
    annotation: Any
    default: Any
    required: bool


class Component(NamedTuple):
    """Something a study file can name."""

    kind: str
    name: str
    summary: str
    factory: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    label: str
    """What a reader of a report calls it: the module's LABEL, or else its name."""

    def build(self, *given: Any, where: str = "", **settings: Any) -> Any:
        """Call the factory with checked settings; `given` are what the engine supplies (model, aggregator, task)."""
        checked = check_settings(self, settings, where)
        positional = [
            p for p in inspect.signature(self.factory).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        parts = given[: len(positional)]
        made = self.factory(*parts, **checked)
        remember_made(made, self, parts, checked)
        return made


def remember_made(made: Any, component: Component, parts: tuple[Any, ...], settings: Mapping[str, Any]) -> None:
    """Write the recipe down, where all of it is known: a data frame, say, or a user's own module has none."""
    try:
        given = tuple(recipe_of(part) for part in parts)
        hash(made)
    except (Refusal, TypeError):
        return
    words = tuple(sorted((key, hashable(value)) for key, value in settings.items()))
    remember(made, Recipe(component.kind, component.name, words, given))


@cache
def queries() -> Mapping[str, Callable[..., Any]]:
    """Every question that may be put to a site, by name."""
    found = {}
    for module in QUERIES:
        for name, member in vars(importlib.import_module(module)).items():
            if getattr(member, RECORDED, "") == "query":
                found[name] = member
    return found


@lru_cache(maxsize=256)
def made_from(recipe: Recipe) -> Any:
    """Make what a recipe tells, from installed components only."""
    if recipe.kind == "task":
        words = dict(recipe.settings)
        return Task(tuple(words["shape"]), tuple(words["classes"]), words["target"])
    parts = [made_from(part) for part in recipe.parts]
    if recipe.kind == "query":
        if recipe.name not in queries():
            raise Refusal(f"there is no query called '{recipe.name}'", remedy=nearest(recipe.name, tuple(queries())))
        return queries()[recipe.name](*parts, **dict(recipe.settings))
    return find(recipe.kind, recipe.name).build(*parts, **dict(recipe.settings))


def kinds() -> tuple[str, ...]:
    return tuple(ROOMS)


@cache
def components(kind: str) -> Mapping[str, Component]:
    """All components of a kind, by name."""
    if kind not in ROOMS:
        raise Refusal(f"there is no kind of component called '{kind}'", remedy=f"choose one of {', '.join(ROOMS)}")
    found: dict[str, Component] = {}
    room = importlib.import_module(ROOMS[kind])
    for module in pkgutil.iter_modules(room.__path__):
        loaded = importlib.import_module(f"{ROOMS[kind]}.{module.name}")
        factory = getattr(loaded, module.name, None)
        if callable(factory) and getattr(factory, "__module__", "") == loaded.__name__:
            label = getattr(loaded, "LABEL", module.name)
            found[module.name] = describe(kind, module.name, factory)._replace(label=label)
    for entry in entry_points(group=f"wardround.{kind}"):
        found[entry.name] = describe(kind, entry.name, entry.load())
    return dict(sorted(found.items()))


def find(kind: str, name: str, *, where: str = "") -> Component:
    """The component of that name; an unknown one is refused with the nearest known name."""
    known = components(kind)
    if name not in known:
        raise Refusal(f"there is no {kind} called '{name}'", where=where, remedy=nearest(name, tuple(known)))
    return known[name]


def nearest(word: str, known: tuple[str, ...]) -> str:
    """Advice after a wrong word: the nearest known one, or the list of all."""
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"


def describe(kind: str, name: str, factory: Callable[..., Any]) -> Component:
    hints = get_type_hints(factory, include_extras=True)
    parameters = tuple(
        Parameter(p.name, hints.get(p.name, Any), None if p.default is p.empty else p.default, p.default is p.empty)
        for p in inspect.signature(factory).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    )
    lines = (inspect.getdoc(factory) or "").splitlines()
    return Component(kind, name, lines[0] if lines else "", factory, parameters, name)


def check_settings(component: Component, settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Settings from a study file against the factory's signature: names, types, ranges, required ones."""
    known = {parameter.name: parameter for parameter in component.parameters}
    place = f"{where}, {component.kind} {component.name}" if where else f"{component.kind} {component.name}"
    for key in settings:
        if key not in known:
            advice = nearest(key, tuple(known)) if known else "it takes no settings: take the key out"
            raise Refusal(f"unknown key '{key}'", where=place, remedy=advice)
    for parameter in component.parameters:
        if parameter.required and parameter.name not in settings:
            raise Refusal(f"the key '{parameter.name}' is missing", where=place, remedy=f"add {parameter.name} = ...")
    return {key: checked(key, value, known[key].annotation, place) for key, value in settings.items()}


def checked(key: str, value: Any, annotation: Any, place: str) -> Any:
    """The value in the annotated type, or a refusal that says what was expected."""
    bounds: tuple[Any, ...] = ()
    if get_origin(annotation) is Annotated:
        annotation, *rest = get_args(annotation)
        bounds = tuple(rest)
    fits, value = convert(value, annotation)
    if not fits:
        raise Refusal(f"'{key}' must be {in_words(annotation)}, not {value!r}", where=place, remedy="correct the value")
    for bound in bounds:
        if isinstance(bound, Bound) and value is not None and not bound.is_met(value):
            raise Refusal(f"'{key}' must be {bound}, not {value!r}", where=place, remedy="correct the value")
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


def in_words(annotation: Any) -> str:
    """A type as a person would say it."""
    words = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
    origin = get_origin(annotation)
    if annotation in words:
        return words[annotation]
    if origin is Literal:
        return "one of " + ", ".join(repr(option) for option in get_args(annotation))
    if origin is Annotated:
        bound = " ".join(str(b) for b in get_args(annotation)[1:])
        return f"{in_words(get_args(annotation)[0])} {bound}"
    if origin in (tuple, list):
        return f"a list of {in_words((get_args(annotation) or (Any,))[0]).removeprefix('a ')}s"
    if origin in (Union, types.UnionType):
        options = [in_words(option) for option in get_args(annotation) if option is not type(None)]
        return " or ".join(options)
    return str(getattr(annotation, "__name__", annotation))
