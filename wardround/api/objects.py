"""Components as objects: `fed_avg(learning_rate=0.1)` names an algorithm and its settings, as a study file would.

An algorithm or a model of your own takes the same place: a factory with the signature that CONTRIBUTING shows, a
finished `Model`, or a Flax module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wardround.core.contracts import Aggregator, Model, Task, Transform
from wardround.core.errors import Refusal
from wardround.engine import registry

KINDS = ("algorithm", "aggregator", "model", "transform", "choice", "partition", "analysis")
"""Kinds that a study names with settings; a name stands for the first of these that has it."""


@dataclass(frozen=True)
class Chosen:
    """A component by name, with settings."""

    kind: str
    name: str
    settings: Mapping[str, Any]

    def words(self) -> dict[str, Any]:
        """As the table of a study file."""
        return {"name": self.name, **self.settings}


def component(name: str) -> Callable[..., Chosen]:
    """What makes a chosen component of that name; its settings are checked at once.

    >>> component("fed_avg")(learning_rate=0.1).words()
    {'name': 'fed_avg', 'learning_rate': 0.1}
    """
    found = next((registry.find(kind, name) for kind in KINDS if name in registry.names(kind)), None)
    if found is None:
        known = tuple(sorted(one for kind in KINDS for one in registry.names(kind)))
        raise Refusal(f"there is no component called '{name}'", remedy=registry.suggest_name(name, known))

    def choose(**settings: Any) -> Chosen:
        registry.check_settings(found, settings, "")
        return Chosen(found.kind, found.name, settings)

    choose.__name__, choose.__doc__ = found.name, found.summary
    return choose


def words_for(kind: str, given: Any) -> dict[str, Any]:
    """The table of a study file for whatever was given: a name, a chosen component, or an object of one's own."""
    if isinstance(given, str):
        return {"name": given}
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, Chosen):
        if given.kind != kind:
            raise Refusal(f"'{given.name}' is a component of the kind {given.kind}, not {kind}", where=kind)
        return given.words()
    return {"name": lend_object(kind, given)}


def lend_object(kind: str, given: Any) -> str:
    """A name under which this process finds an object of the user's own."""
    name = f"own_{getattr(given, '__name__', type(given).__name__).lower()}_{id(given):x}"
    if registry.is_lent(kind, name):
        return name
    return registry.lend(kind, name, factory_for(kind, given))


def factory_for(kind: str, given: Any) -> Callable[..., Any]:
    """A factory as the registry knows them, for one that was given or for what it would make."""
    made = {"model": Model, "aggregator": Aggregator, "transform": Transform}.get(kind)
    if kind == "model" and is_flax(given):
        from wardround.models.from_flax import from_flax, loss_for

        return lambda task: from_flax(given, loss_for(task), task)
    if kind == "model" and isinstance(given, Model):

        def model(task: Task) -> Model:
            return given

        return model
    if made is not None and isinstance(given, made):
        return lambda: given
    if callable(given):
        return given
    raise Refusal(
        f"an object of type {type(given).__name__} is no {kind}",
        where=kind,
        remedy=f"give a name, a component such as wardround.{'fed_avg' if kind == 'algorithm' else kind}(...), or a"
        " function that makes one",
    )


def is_flax(given: Any) -> bool:
    """Whether this is a Flax module, without importing Flax for what is none."""
    return any(one.__module__.startswith("flax.linen") for one in type(given).__mro__)
