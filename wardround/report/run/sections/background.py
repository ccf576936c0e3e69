"""What it took: traffic, time and energy, and how to do the run again."""

from collections.abc import Iterable

from wardround.report.html.document import chart_figures
from wardround.report.html.markup import Html, paragraph, safe
from wardround.report.run import progress_charts, tables
from wardround.report.run.equal_cost import equal_cost
from wardround.report.run.section import ReportSection
from wardround.runs.run import Run


def costs(run: Run) -> Iterable[Html]:
    whose = (
        "Time and energy are those of the coordinator's computer, and energy counts the traffic, too. What the "
        "hospitals' own computers used is not in it: each hospital sees its own (`wardround site report`) and tells "
        "nobody, since processor time follows what is in the rows."
    )
    told = [paragraph(Html(whose))] if run.kind == "deployed" else []
    if run.kind == "deployed":  # of all that was said, how much was training
        sent = dict.fromkeys(method.meters.get("traffic", {}).get("words") for method in run.methods)
        told += [paragraph(safe(words)) for words in sent if words]
    if run.kind == "site":
        told = [
            paragraph(safe(words)) for method in run.methods if (words := method.meters.get("energy", {}).get("words"))
        ]
    return (
        chart_figures("costs", progress_charts.costs(run)),
        tables.costs(run),
        tables.unit_costs(run),
        equal_cost(run),
        *told,
    )


def technical_details(run: Run) -> Iterable[Html]:
    return tables.percentiles(run), tables.manifest(run)


SECTIONS = (
    ReportSection(120, "costs", "Traffic, time and energy", costs),
    ReportSection(140, "curious", "Technical details", technical_details),
)
