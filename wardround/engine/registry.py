"""Finds components by crawling their rooms: a module's name is its factory's name is its key in a study file.

Installed packages add components of their own (see `core.packages`), by the same rules and never in the place of ours.
They are looked up by name and imported only when they are used, so a broken one harms nobody else.
"""

import importlib.util
import inspect
import pkgutil
import types
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from wardround.core.components.packages import NAME, OWN, Announcement, Package, announcements, import_factory
from wardround.core.components.recipes import Recipe, hashable, recipe_of, remember
from wardround.core.components.settings import check_value, convert, type_text
from wardround.core.contracts import Task
from wardround.core.errors import Refusal

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
    "query": "wardround.queries",
    "analysis": "wardround.analyses",
    "labeling_function": "wardround.weak_supervision.functions",
}
INNER_ROOMS: Mapping[str, tuple[str, ...]] = {
    "algorithm": ("baselines", "images"),
    "model": ("images",),
    "dataset": ("images", "leaf", "survival", "weak_supervision"),
    "analysis": ("survival",),
}
"""Rooms within a room, where a kind has more components than one folder should hold; names are the same everywhere."""
TABLES: Mapping[str, str] = {"metric": "wardround.evaluate.metrics"}
"""Kinds whose own components stand in one table of a module (METRICS) and not each in a file of a room."""
SHARED = (("source", "dataset"), ("algorithm", "choice"))
"""Kinds that a study file names in the same place, so that a name must not exist in both."""
RESERVED = frozenset({"global"})
"""What [compare] calls the study's own algorithm."""


_lent: "dict[tuple[str, str], Component]" = {}
"""What Python gave this process to use under a name of its own."""


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
    package: Package = OWN
    """Who brings it."""

    def build(self, *given: Any, where: str = "", **settings: Any) -> Any:
        """Call the factory with checked settings; `given` are what the engine supplies (model, aggregator, task)."""
        checked = check_settings(self, settings, where)
        positional = [
            p for p in inspect.signature(self.factory).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        parts = given[: len(positional)]
        made = self.factory(*parts, **checked)
        if self.package != OWN and type(made).__name__ not in GIVES.get(self.kind, ()):
            raise Refusal(f"the {self.kind} '{self.name}' of {self.package} returns no {self.kind}", where=where)
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


@lru_cache(maxsize=256)
def make_from(recipe: Recipe) -> Any:
    """Make what a recipe tells, from installed components only; the same recipe gives the same thing."""
    if recipe.kind == "task":
        words = dict(recipe.settings)
        said = (tuple(words["shape"]), tuple(words["classes"]), words["target"], tuple(words.get("horizons", ())))
        return Task(*said, segmentation=words.get("segmentation") is True)
    parts = [make_from(part) for part in recipe.parts]
    return find(recipe.kind, recipe.name).build(*parts, **dict(recipe.settings))


def kinds() -> tuple[str, ...]:
    return (*ROOMS, *TABLES)


def own_component(kind: str, name: str) -> Component | None:
    """One of ours, of which nothing but its own module is imported; none where there is none of that name."""
    if kind not in kinds():
        raise Refusal(f"there is no kind of component called '{kind}'", remedy=f"choose one of {', '.join(kinds())}")
    if kind in TABLES:
        table: Mapping[str, Any] = importlib.import_module(TABLES[kind]).METRICS
        known = name in table
        return Component(kind, name, table[name].words, partial(table.get, name), (), name) if known else None
    module = module_of(kind, name)
    if not module:
        return None
    loaded = importlib.import_module(module)
    factory = getattr(loaded, name, None)
    if not callable(factory) or getattr(factory, "__module__", "") != loaded.__name__:
        return None
    return describe(kind, name, factory)._replace(label=getattr(loaded, "LABEL", name))


def rooms_of(kind: str) -> tuple[str, ...]:
    """The packages that are searched for a kind."""
    return (ROOMS[kind], *(f"{ROOMS[kind]}.{inner}" for inner in INNER_ROOMS.get(kind, ())))


def module_of(kind: str, name: str) -> str:
    """Where a component of ours would be, without importing it; "" where there is no such module."""
    places = (f"{room}.{name}" for room in rooms_of(kind)) if NAME.fullmatch(name) else ()
    return next((place for place in places if importlib.util.find_spec(place) is not None), "")


@cache
def own_components(kind: str) -> Mapping[str, Component]:
    """Our components of a kind, by name."""
    if kind in ROOMS:
        rooms = map(importlib.import_module, rooms_of(kind))
        names = [module.name for room in rooms for module in pkgutil.iter_modules(room.__path__)]
    else:
        names = list(importlib.import_module(TABLES[kind]).METRICS) if kind in TABLES else [""]
    found = {name: own_component(kind, name) for name in names}
    return {name: one for name, one in sorted(found.items()) if one is not None}


def names(kind: str) -> tuple[str, ...]:
    """Every name of a kind, ours and those that other packages announce; nothing of theirs is imported."""
    theirs = {one.name for one in announcements() if one.kind == kind and not one.fault and not is_taken(one)}
    lent = {name for of, name in tuple(_lent) if of == kind}  # what nobody holds goes while we look
    return tuple(sorted({*own_components(kind), *theirs, *lent}))


def components(kind: str) -> Mapping[str, Component]:
    """All components of a kind, by name; those of other packages as far as they can be imported."""
    theirs = [load(one) for one in announcements() if one.kind == kind]
    sound = {one.name: one for one in theirs if isinstance(one, Component)}
    return dict(sorted({**sound, **own_components(kind)}.items()))


def find(kind: str, name: str, *, where: str = "") -> Component:
    """The component of that name, ours first; an unknown one is refused with the nearest known name."""
    if (kind, name) in _lent:
        return _lent[kind, name]
    if (own := own_component(kind, name)) is not None:
        return own
    told = announcement_of(kind, name)
    if told is None:
        raise Refusal(f"there is no {kind} called '{name}'", where=where, remedy=suggest_name(name, names(kind)))
    loaded = load(told)
    if isinstance(loaded, str):
        remedy = f"repair or uninstall the package {told.package.name}, or name another {kind}"
        raise Refusal(f"the {told} cannot be used: {loaded}", where=where, remedy=remedy)
    return loaded


def lend(kind: str, name: str, factory: Callable[..., Any]) -> str:
    """Let this process find an object of the user's own under a name, which no component may have."""
    if own_component(kind, name) is not None or announcement_of(kind, name) is not None:
        raise Refusal(f"there is a {kind} called '{name}' already", remedy="give yours another name")
    _lent[kind, name] = describe(kind, name, factory)._replace(label=str(getattr(factory, "LABEL", name)))
    return name


def is_lent(kind: str, name: str) -> bool:
    """Whether only this process knows it."""
    return (kind, name) in _lent


def announcement_of(kind: str, name: str) -> Announcement | None:
    return next((one for one in announcements() if (one.kind, one.name) == (kind, name)), None)


def package_of(kind: str, name: str) -> Package | None:
    """The package that brings a component, without importing it; none where it is not installed."""
    if kind in kinds() and own_component(kind, name) is not None:
        return OWN
    told = announcement_of(kind, name)
    return told.package if told else None


def fault_of(kind: str, name: str) -> str:
    """Why a component of another package cannot be used, found out by importing it; "" where it can."""
    told = announcement_of(kind, name)
    loaded = load(told) if told else "it is not installed"
    return loaded if isinstance(loaded, str) else ""


def faults(kind: str | None = None) -> list[str]:
    """What is wrong with components of other packages, each in one line; a kind alone leaves other kinds unimported."""
    asked = [one for one in announcements() if kind is None or one.kind == kind]
    found = ((one, load(one)) for one in asked)
    return [f"the {one} cannot be used: {fault}" for one, fault in found if isinstance(fault, str)]


def announcement_fault(one: Announcement) -> str:
    """Why a component of another package may not be used, as far as its metadata tell; "" where it may."""
    if one.fault:
        return one.fault
    if one.kind not in kinds():
        return f"there is no kind of component called '{one.kind}' (there are {', '.join(kinds())})"
    if is_taken(one):
        return f"wardround has a component called '{one.name}', which no package can replace"
    rivals = [
        str(two.package) for two in announcements() if two.kind in kinds_beside(one.kind) and two.name == one.name
    ]
    return f"this name is brought more than once ({', '.join(rivals)})" if len(rivals) > 1 else ""


def kinds_beside(kind: str) -> tuple[str, ...]:
    """The kinds among which a name must be one thing only."""
    return next((both for both in SHARED if kind in both), (kind,))


def is_taken(one: Announcement) -> bool:
    """Whether the name belongs to us."""
    return one.name in RESERVED or any(own_component(kind, one.name) is not None for kind in kinds_beside(one.kind))


@cache
def load(one: Announcement) -> Component | str:
    """A component of another package, imported and held to the rules of our own; or what is wrong with it."""
    if fault := announcement_fault(one):
        return fault
    try:
        module, factory = import_factory(one)
        component = describe(one.kind, one.name, factory)._replace(
            label=str(getattr(module, "LABEL", one.name)), package=one.package
        )
        return broken_rule(component) or component
    except Refusal as refusal:
        return refusal.what
    except (NameError, TypeError, ValueError, AttributeError) as error:  # annotations that do not resolve
        return f"its settings cannot be read ({type(error).__name__}: {error})"


GIVES: Mapping[str, tuple[str, ...]] = {
    **{kind: (kind.title(),) for kind in ("algorithm", "aggregator", "model", "transform", "meter", "partition")},
    **{kind: (kind.title(),) for kind in ("choice", "query", "metric", "analysis")},
    "source": ("Table",),
    "dataset": ("Table", "Federation"),
    "probe": ("Algorithm",),
    "labeling_function": ("LabelingFunction",),
}
"""What the factories of a kind make, by the names of the classes: of each there is one in the package."""
GIVEN: Mapping[str, int] = {"algorithm": 2, "model": 1, "probe": 1}
"""How many things the engine supplies to factories of a kind (model and aggregator, task)."""
LONGEST_SUMMARY = 120


def broken_rule(component: Component) -> str:
    """Which rule of the house a component breaks; "" where it keeps them all."""
    factory, module = component.factory, inspect.getmodule(component.factory)
    signature = inspect.signature(factory).parameters.values()
    made = get_type_hints(factory).get("return")
    options = get_args(made) if get_origin(made) in (Union, types.UnionType) else (made,)
    untyped = [p.name for p in component.parameters if p.annotation is Any]
    for broken, told in (
        (not (module and module.__doc__), "its module has no docstring"),
        (not component.summary, "its function has no docstring"),
        (len(component.summary) > LONGEST_SUMMARY, f"its first line has more than {LONGEST_SUMMARY} letters"),
        (factory.__name__ != component.name, f"its function calls itself {factory.__name__}"),
        (
            not all(is_ours(one) and one.__name__ in GIVES[component.kind] for one in options),
            f"its function should be annotated to give {' or '.join(GIVES[component.kind])}",
        ),
        (
            any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature)
            or sum(p.kind is not p.KEYWORD_ONLY for p in signature) > GIVEN.get(component.kind, 0),
            "its settings should be keywords, after a * in its function's head",
        ),
        (bool(untyped), f"the type of its setting {', '.join(untyped)} is missing"),
    ):
        if broken:
            return told
    for parameter in component.parameters:
        if not parameter.required and not convert(parameter.default, parameter.annotation)[0]:
            return f"the default of its setting {parameter.name} is not {type_text(parameter.annotation)}"
    return ""


def is_ours(made: Any) -> bool:
    """Whether a class is one of our contracts."""
    return inspect.isclass(made) and made.__module__.startswith("wardround.")


def suggest_name(word: str, known: tuple[str, ...]) -> str:
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
            advice = suggest_name(key, tuple(known)) if known else "it takes no settings: take the key out"
            raise Refusal(f"unknown key '{key}'", where=place, remedy=advice)
    for parameter in component.parameters:
        if parameter.required and parameter.name not in settings:
            raise Refusal(f"the key '{parameter.name}' is missing", where=place, remedy=f"add {parameter.name} = ...")
    return {key: check_value(key, value, known[key].annotation, place) for key, value in settings.items()}
