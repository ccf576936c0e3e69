"""How a thing was made, so that another process can make the same one: a component's kind, name, settings, parts.

Code never travels between the coordinator and a site. What travels is a recipe, plain JSON that names installed
components; each side makes the thing for itself, and a site's policy decides about names it can read. Functions cannot
tell how they were made, so whoever makes a component writes it down here.
"""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from wardround.core.components.terms import TERMS, Terms
from wardround.core.contracts import Task
from wardround.core.errors import Refusal

Given = ParamSpec("Given")
Made = TypeVar("Made")
REMEMBERED = 1 << 16
"""Recipes kept; those not used for longest go first."""


class Recipe(NamedTuple):
    """`parts` are what the factory is given beside its settings: other recipes, or the task."""

    kind: str
    name: str
    settings: tuple[tuple[str, Any], ...] = ()
    parts: tuple[Any, ...] = ()


_recipes: "OrderedDict[Hashable, Recipe]" = OrderedDict()


def remember(made: Any, recipe: Recipe) -> None:
    """Write down how a component was made."""
    _recipes[made] = recipe
    _recipes.move_to_end(made)
    while len(_recipes) > REMEMBERED:
        _recipes.popitem(last=False)


def recipe_of(made: Any) -> Recipe:
    """How this was made; refused for something that no installed component makes."""
    if isinstance(made, Task):
        words: list[tuple[str, Any]] = [("classes", made.classes), ("shape", made.shape), ("target", made.target)]
        # What other tasks do not have stays unsaid, so that their recipes are what they were.
        words += [("horizons", made.horizons)] if made.survival else []
        words += [("segmentation", True)] if made.segmentation else []
        return Recipe("task", "task", tuple(sorted(words)))
    if made not in _recipes:
        raise Refusal(
            "this was not made by an installed component, so another site could not rebuild it",
            remedy="name it in a study file, or install it as a component",
        )
    _recipes.move_to_end(made)
    return _recipes[made]


def recorded(kind: str, terms: Terms | None = None) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """A factory whose things can be made anew elsewhere, and which gives the same thing for the same words.

    The latter saves compilation: programs are kept for the very functions they were compiled from. What it is given
    must be components (the parts, first) and plain values (the settings). A probe or a query says here on what terms a
    site answers it.
    """

    def decorate(factory: Callable[Given, Made]) -> Callable[Given, Made]:
        signature = inspect.signature(factory)
        cached = lru_cache(maxsize=256)(cast(Callable[..., Made], factory))

        @wraps(factory)
        def make(*given: Given.args, **settings: Given.kwargs) -> Made:
            words = {key: hashable(value) for key, value in signature.bind(*given, **settings).arguments.items()}
            made = cached(**words)
            parts = [value for value in words.values() if not is_plain(value)]
            # Else it was made from something made by hand, as tests do: it cannot be made elsewhere.
            if all(isinstance(part, Task) or part in _recipes for part in parts):
                plain = tuple(sorted((key, value) for key, value in words.items() if is_plain(value)))
                remember(made, Recipe(kind, factory.__name__, plain, tuple(map(recipe_of, parts))))
            return made

        if terms is not None:
            setattr(make, TERMS, terms)
        return make

    return decorate


def is_plain(value: Any) -> bool:
    """Whether JSON can hold it; a named tuple is a component, not a list."""
    if isinstance(value, tuple):
        return not hasattr(value, "_fields") and all(is_plain(part) for part in value)
    return value is None or isinstance(value, str | int | float | bool)


def hashable(value: Any) -> Any:
    """Lists as tuples, so that settings can be looked up; a named tuple is a component and stays what it is."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return tuple(hashable(part) for part in value)
    return value


def to_json(recipe: Recipe) -> dict[str, Any]:
    return {
        "kind": recipe.kind,
        "name": recipe.name,
        "settings": dict(recipe.settings),
        "parts": [to_json(part) for part in recipe.parts],
    }


def from_json(content: Any) -> Recipe:
    """A recipe as it came over the wire; anything else is refused."""
    if not isinstance(content, Mapping) or set(content) != {"kind", "name", "settings", "parts"}:
        raise Refusal("a message names no component", remedy="compare the versions of wardround on both sides")
    kind, name, settings, parts = (content[key] for key in ("kind", "name", "settings", "parts"))
    if not (
        isinstance(kind, str) and isinstance(name, str) and isinstance(settings, Mapping) and isinstance(parts, list)
    ):
        raise Refusal("a message names no component", remedy="compare the versions of wardround on both sides")
    words = tuple(sorted((str(key), hashable(value)) for key, value in settings.items()))
    return Recipe(kind, name, words, tuple(from_json(part) for part in parts))


def names_in(recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """Every (kind, name) that the recipe uses, for a policy to decide about."""
    return ((recipe.kind, recipe.name), *(pair for part in recipe.parts for pair in names_in(part)))
