"""What the model means for patients: whom it flags, rightly and wrongly, in words and in a table."""

from collections.abc import Iterable, Mapping, Sequence

from wardround.report import numbers
from wardround.report.clinical.calibration import percent
from wardround.report.clinical.leader import leader_first, part_of, repeat_words
from wardround.report.html.markup import Cell, FigureCell, Html, details, join, paragraph, plain, safe, table
from wardround.report.run.summary import interval_name
from wardround.report.unit import one_of, unit_of, units_of
from wardround.runs.clinical.figures import FlagCounts, OperatingPoint
from wardround.runs.result import MethodResult
from wardround.runs.run import Run
from wardround.runs.scores import MetricValue

SHARES = {"sensitivity": "Sensitivity", "specificity": "Specificity", "ppv": "PPV", "npv": "NPV"}
OPEN = 12
LISTED = 200
COARSE = 0.05
"""Share of the patients by which the number flagged may be off before it is not told in words."""


def operating_section(run: Run) -> Html:
    """Of 100 patients like these: how many are flagged, and how many of them rightly."""
    shown = leader_first(run, tuple(m for m in run.methods if part_of(m, lambda one: one.operating_point)))
    points = [(method, point) for method in shown if (point := part_of(method, lambda one: one.operating_point))]
    if not points:
        return class_section(run)
    leader, first = points[0]
    rows = [(f"{method.label}, from {percent(point.threshold or 0.0)} on", point.all) for method, point in points]
    return join(
        [
            Html(f'<p class="lead">{hundred_patients(run, first.all)}</p>'),
            paragraph(Html(f"{how_chosen(run, leader, first)} {repeat_words(run)}".rstrip())),
            flag_table(run, f"All test {units_of(run)}", "Model", rows),
            by_hospital(run, leader, first),
        ]
    )


def hundred_patients(run: Run, counts: FlagCounts) -> Html:
    """In whole numbers of patients; of a thousand or more where a hundred would leave none."""
    rows = counts.rows or 0
    if not rows:
        return safe(f"There are no test {units_of(run)} to count.")
    if (counts.rounding or 0.0) > COARSE * rows:
        return safe(
            f"There are too few {units_of(run)} to tell from rounded counts how many are flagged; the intervals below "
            "say how little is known. Each hospital has its exact numbers in its own report."
        )
    right, missed = counts.true_positives or 0, counts.false_negatives or 0
    least = min((one for one in (counts.flagged, right + missed) if one), default=rows)
    of = next((scale for scale in (100, 1_000, 10_000) if scale * least / rows >= 1), 100_000)
    flagged, ill = round(of * counts.flagged / rows), round(of * (right + missed) / rows)
    hits = min(flagged, ill, round(of * right / rows))
    outcome = with_outcome(run)
    if not flagged:
        return safe(f"Of {of:,} {units_of(run)} like these, none is flagged; {ill} have {outcome}.")
    rightly = f"{hits} of them rightly" if flagged > 1 else "rightly" if hits else "wrongly"
    return Html(
        f"Of {of:,} {units_of(run)} like these, "
        f"<strong>{flagged:,} {'is' if flagged == 1 else 'are'} flagged, {rightly}</strong>. "
        f"{ill:,} have {safe(outcome)}, of whom {ill - hits:,} {'is' if ill - hits == 1 else 'are'} missed."
    )


def with_outcome(run: Run) -> str:
    return f"the outcome ({plain(run.task.positive)})" if run.task.positive else "the outcome"


def how_chosen(run: Run, method: MethodResult, point: OperatingPoint) -> Html:
    risk = f"from a predicted risk of {percent(point.threshold or 0.0)} on"
    unit = unit_of(run)
    start = f"{one_of(run).capitalize()} is flagged {risk}."
    if len(run.methods) > 1:
        start = f"<strong>{safe(method.label)}</strong> flags {one_of(run)} {risk}."
    if point.fallback:
        return Html(f"{start} This is a stand-in, since it could not be chosen: {safe(point.fallback)}.")
    if point.rule == "threshold":
        return Html(f"{start} The study sets this threshold.")
    rules = {
        "sensitivity": f"the highest threshold that finds {percent(point.target or 0.0)} of those with the outcome",
        "specificity": f"the lowest threshold that does not flag {percent(point.target or 0.0)} of those without it",
        "net_benefit": f"the highest net benefit for whoever would act at {percent(point.target or 0.0)}",
    }
    by = rules.get(point.rule, "the highest sum of sensitivity and specificity (Youden's index)")
    among = f"among {point.validation_rows:,} validation {unit}s" if point.validation_rows else f"on validation {unit}s"
    return Html(f"{start} It was chosen {among} by {by}; test {unit}s had no say.")


def flag_table(run: Run, caption: str, first: str, rows: Sequence[tuple[str, FlagCounts]]) -> Html:
    columns = [first, units_of(run).capitalize(), "With outcome", "Flagged", *SHARES.values()]
    body = [
        [
            name,
            numbers.count(counts.rows),
            f"{counts.with_outcome:,}",
            FigureCell(f"{counts.flagged:,}", (f"{numbers.count(counts.true_positives)} rightly",)),
            *(share_cell(getattr(counts, share)) for share in SHARES),
        ]
        for name, counts in rows
    ]
    about = f"PPV and NPV: positive and negative predictive value; in small print: {interval_name(run)} (Wilson)"
    return table(f"{caption}. {about}", columns, body)


def share_cell(figure: MetricValue) -> Cell:
    if figure.value is None:
        return Html(f'<span class="undefined">not defined: {safe(figure.reason)}</span>')
    if figure.low is None or figure.high is None:
        return percent(figure.value)
    return FigureCell(percent(figure.value), (f"{percent(figure.low).removesuffix(' %')} to {percent(figure.high)}",))


def by_hospital(run: Run, method: MethodResult, point: OperatingPoint) -> Html:
    sites = list(point.sites.items())[:LISTED]
    if len(sites) < 2:
        return Html("")
    whole = flag_table(run, f"{method.label} at each hospital", "Hospital", sites)
    return whole if len(sites) <= OPEN else details(f"At each of {len(sites):,} hospitals", whole)


def class_section(run: Run) -> Html:
    """Of more than two classes: each against the rest, the most probable class being the prediction."""
    found = [(method, method.clinical.classes) for method in run.methods if method.clinical and method.clinical.classes]
    if not found:
        return Html("")
    ordered = leader_first(run, tuple(method for method, _ in found))
    classes = {method.name: counts for method, counts in found}
    words = (
        f"Each class against all others: {one_of(run)} counts as flagged for the class that the model holds for the "
        "most probable."
    )
    return join([paragraph(safe(f"{words} {repeat_words(run)}".rstrip())), *class_tables(run, ordered, classes)])


def class_tables(
    run: Run, methods: Sequence[MethodResult], classes: Mapping[str, Mapping[str, FlagCounts]]
) -> Iterable[Html]:
    for place, method in enumerate(methods):
        whole = flag_table(run, method.label, "Class", list(classes[method.name].items())[:LISTED])
        yield details(method.label, whole) if place else whole
