"""What a section of a run's report is, and how the page finds them: every module in `sections` may hold some."""

import pkgutil
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import NamedTuple

from wardround.report.html.markup import Html
from wardround.report.run import sections
from wardround.runs.run import Run


class ReportSection(NamedTuple):
    """One section; where all its parts are empty the page leaves it out."""

    order: int
    """Its place: lower comes first."""
    name: str
    """What links lead to."""
    title: str
    parts: Callable[[Run], Iterable[Html]]


@cache
def find_sections() -> tuple[ReportSection, ...]:
    """All sections in the order in which the page shows them."""
    names = sorted(module.name for module in pkgutil.iter_modules(sections.__path__))
    found = [one for name in names for one in import_module(f"{sections.__name__}.{name}").SECTIONS]
    return tuple(sorted(found, key=lambda one: one.order))
