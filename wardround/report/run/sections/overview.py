"""What came out, what it cannot tell, and the ground truth of simulated data."""

from collections.abc import Iterable

from wardround.report import numbers
from wardround.report.html.document import facts, headed_list, remark_list
from wardround.report.html.markup import Html, bullets, plain
from wardround.report.metric_names import label_of
from wardround.report.run import ground_truth
from wardround.report.run import summary as words
from wardround.report.run.ranking import best_overall
from wardround.report.run.section import ReportSection
from wardround.report.unit import units_of
from wardround.runs.fields import total
from wardround.runs.run import Run


def summary(run: Run) -> Iterable[Html]:
    return headed_list(words.summary(run)), key_figures(run)


def limits(run: Run) -> Iterable[Html]:
    return bullets(words.limits(run)), remark_list(run.notes)


def truth(run: Run) -> Iterable[Html]:
    return (ground_truth.truth_section(run),)


def key_figures(run: Run) -> Html:
    """The figures a reader looks for first."""
    cost = [run.cost(method) for method in run.methods]
    patients = sum(hospital.patients for hospital in run.hospitals)
    found: list[tuple[str, str] | tuple[str, str, str]] = []
    if run.hospitals:
        found.append(("Hospitals", f"{len(run.hospitals):,}"))
    if patients:
        found.append((units_of(run).capitalize(), f"{patients:,}"))
    leaders = best_overall(run, run.metric)
    if len(leaders) == 1:
        value = leaders[0].over_all(run.metric).value or 0.0
        reached = f"{plain(label_of(run.metric))} {numbers.score(value)}"
        if len(run.methods) == 1:
            found.append((f"Score over all {units_of(run)}", f"{numbers.score(value)}", plain(label_of(run.metric))))
        else:
            found.append(("Best on average", plain(leaders[0].label), reached))
    for title, amount, unit in (
        ("Traffic", total([c.traffic for c in cost]), numbers.traffic),
        ("Time", total([c.seconds for c in cost]), numbers.time),
        ("Energy (estimate)", total([c.watt_hours for c in cost]), numbers.energy),
    ):
        if amount is not None:
            found.append((title, unit(amount)))
    return facts(found)


SECTIONS = (
    ReportSection(10, "summary", "In short", summary),
    ReportSection(20, "limits", "What this cannot tell", limits),
    ReportSection(105, "truth", "Ground truth", truth),
)
