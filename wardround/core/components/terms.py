"""On what terms a site answers a probe or a query: what the answer tells, how large it is, how often, at what price.

They stand beside the factory, `@recorded("query", Terms(...))`, so whoever adds a question says all of it in one file.
A site's administrator reads the words and the size before approving a study; the site itself keeps to the limits.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from wardround.core.contracts import Message
from wardround.core.errors import Refusal

Settings = Mapping[str, Any]
Rows = Literal["table", "features", "training"]
"""The whole table, before a schema is agreed on; the features of the training rows; these with the outcome."""


class Extent(NamedTuple):
    """What the size of an answer follows from."""

    settings: Settings = MappingProxyType({})
    parameters: int = 0
    """Numbers that the study's model has."""
    sites: int = 1
    models: int = 1
    """Models that a site is given to judge."""
    columns: int = 0
    """Columns that the study reads at the site."""


class Terms(NamedTuple):
    """The default of `times` is the strictest: whoever wants to be asked more often says so."""

    words: str | Callable[[Settings], str]
    """What an answer tells, to go on after "For the query NAME, once: ..."; {setting} stands for a setting's value."""
    numbers: Callable[[Extent], int]
    """How many numbers (or names) an answer has at most."""
    times: int = 1
    """How many different questions of the kind a site answers in a study, at most.

    For queries only: how often a probe is asked follows from the choice of partners that announces it.
    """
    rows: Rows = "features"
    """What a query sees of the site's table."""
    spends: Callable[[Settings, Message], float] = lambda settings, message: 0.0
    """How much an answer takes of the epsilon that all queries of the study may spend together."""
    in_part: tuple[str, ...] = ()
    """Settings of which a single question may take a part, and not nothing, of what was announced; others are equal."""
    given: Callable[[Any, int], Any] = lambda params, models: params
    """What a probe begins with, from one model's arrays and how many models the choice announces; by default the one.

    A site is given arrays of just these shapes: a larger stack would tell more, and take its memory.
    """

    def describe(self, settings: Settings) -> str:
        """What an answer with these settings tells.

        >>> Terms("groups of {smallest_cell} or more", lambda of: 1).describe({"smallest_cell": 10})
        'groups of 10 or more'
        """
        return self.words(settings) if callable(self.words) else self.words.format(**settings)

    def departs(self, announced: Settings, asked: Settings) -> str:
        """The first setting in which a question is not what was announced; empty where it is."""
        for name in sorted({*announced, *asked}):
            said, given = announced.get(name), asked.get(name)
            if said != given and not (name in self.in_part and is_part(given, said)):
                return name
        return ""


def is_part(given: Any, whole: Any) -> bool:
    """Whether a number is more than nothing and at most the whole."""
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (given, whole))
    return numbers and 0 < given <= whole


TERMS = "terms"
"""The attribute by which a factory carries its terms."""


def terms_of(factory: Callable[..., Any]) -> Terms:
    """The terms that stand beside a factory; without any, no site answers."""
    found = getattr(factory, TERMS, None)
    if not isinstance(found, Terms):
        raise Refusal(
            f"'{factory.__name__}' does not say on what terms a site answers it",
            where=factory.__module__,
            remedy="let its author say so: @recorded(KIND, Terms(words, numbers, ...))",
        )
    return found
