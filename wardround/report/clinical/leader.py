"""Which model the clinical sections show first, and how the others follow."""

from collections.abc import Callable
from typing import TypeVar

from wardround.report.html.markup import Html, details, join, paragraph, safe
from wardround.report.metric_names import label_of
from wardround.report.run.ranking import best
from wardround.runs.clinical.figures import ClinicalFigures
from wardround.runs.result import MethodResult
from wardround.runs.run import Run

Part = TypeVar("Part")
BASELINE = "centralized"
"""An algorithm that nobody could use: it is shown first only where there is no other."""


def part_of(method: MethodResult, of: Callable[[ClinicalFigures], Part | None]) -> Part | None:
    return None if method.clinical is None else of(method.clinical)


def leader_first(run: Run, methods: tuple[MethodResult, ...]) -> tuple[MethodResult, ...]:
    """The best on average that could be used in practice, then the others as they are."""
    usable = tuple(method for method in methods if method.algorithm != BASELINE) or methods
    measures = {method.name: method.over_all(run.metric) for method in usable}
    leaders = [method for method in best(run, measures, run.metric) if method in usable]
    first = leaders[0] if leaders else next(iter(usable), None)
    return methods if first is None else (first, *(method for method in methods if method is not first))


def which_model(run: Run, shown: tuple[MethodResult, ...]) -> Html:
    """What a reader must know of a section that shows one of several models; nothing where there is one model."""
    if not shown or len(run.methods) == 1:
        return paragraph(safe(repeat_words(run))) if run.repeats > 1 else Html("")
    words = f"Shown for <strong>{safe(shown[0].label)}</strong>, the best on average"
    if run.metric:
        words += f" ({safe(label_of(run.metric))})"
    if any(method.algorithm == BASELINE for method in shown[1:]):
        words += " of those that need no pooled records"
    words += "; the others are below." if len(shown) > 1 else "."
    return paragraph(Html(f"{words} {repeat_words(run)}".rstrip()))


def repeat_words(run: Run) -> str:
    return f"These figures are of the first of {run.repeats} repeats, whose models are kept." if run.repeats > 1 else ""


def others_below(shown: tuple[MethodResult, ...], show: Callable[[MethodResult], Html]) -> Html:
    """Each further model folded away."""
    return join(details(method.label, show(method)) for method in shown[1:])
