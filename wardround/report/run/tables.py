"""The tables of the report: every number that a chart shows, and those that no chart shows."""

from collections.abc import Callable, Iterable, Sequence

from wardround.report import numbers
from wardround.report.html.markup import Cell, FigureCell, Html, details, join, plain, safe, table
from wardround.report.metric_names import direction, label_of, meaning_of
from wardround.report.run.ranking import best
from wardround.report.run.summary import interval_name
from wardround.report.unit import units_of
from wardround.runs.fields import Json, mapping, number
from wardround.runs.result import ALL, Cost, MethodDifference, MethodResult
from wardround.runs.run import Run
from wardround.runs.scores import NOT_MEASURED, MetricValue
from wardround.runs.sites import SiteSummary

LISTED = 2000
"""Hospitals above which a table of all of them is left to result.json."""
MOST_COLUMNS = 6
"""Methods up to which each has a column of its own."""
OPEN = 30
"""Hospitals up to which tables by hospital stand open."""

VERDICTS = {"better": "▲", "worse": "▼", "no": "="}


def cell(measure: MetricValue, *, winner: bool = False) -> Cell:
    """A score and its interval, or why there is none."""
    if measure.value is None:
        return Html(f'<span class="undefined">not defined: {safe(measure.reason)}</span>')
    return FigureCell(*numbers.with_interval(measure.value, measure), best=winner)


def scores(run: Run) -> Html:
    """The main measure open, the others folded away."""
    if not run.methods or not run.metrics:
        return Html("")
    parts = [scores_of(run, metric) for metric in run.metrics]
    main = (
        parts[0] if len(run.hospitals) <= OPEN else join([totals_of(run, run.metrics[0]), all_hospitals(run, parts[0])])
    )
    if len(run.metrics) == 1:
        return main
    others = [details(f"{label_of(m)}: all scores", part) for m, part in zip(run.metrics[1:], parts[1:], strict=True)]
    return join([main, *others])


def all_hospitals(run: Run, part: Html) -> Html:
    if len(run.hospitals) > LISTED:
        return Html(f"<p>The numbers of all {len(run.hospitals):,} hospitals are in <code>result.json</code>.</p>")
    return details(f"All {len(run.hospitals):,} hospitals", part)


def scores_of(run: Run, metric: str) -> Html:
    hospitals = run.hospitals if len(run.hospitals) <= LISTED else ()
    rows = [score_row(run, h.name, metric, lambda m, h=h: m.at(h.name, metric)) for h in hospitals]  # type: ignore[misc]
    return score_table(run, metric, [*rows, *total_rows(run, metric)])


def totals_of(run: Run, metric: str) -> Html:
    return score_table(run, metric, total_rows(run, metric))


def total_rows(run: Run, metric: str) -> list[Sequence[Cell]]:
    if len(run.hospitals) == 1:
        return []
    rows = []
    if any(metric in method.scores.weighted for method in run.methods):
        name = f"All hospitals, by {units_of(run)}"
        rows.append(score_row(run, name, metric, lambda m: m.over_all(metric)))
    if any(metric in method.scores.unweighted for method in run.methods):
        name = "All hospitals, each counting the same"
        rows.append(score_row(run, name, metric, lambda m: m.scores.unweighted.get(metric, NOT_MEASURED)))
    if any(metric in method.scores.pooled for method in run.methods):
        name = f"All {units_of(run)} as one hospital's"
        rows.append(score_row(run, name, metric, lambda m: m.scores.pooled.get(metric, NOT_MEASURED)))
    return rows


def score_row(run: Run, name: str, metric: str, of: Callable[[MethodResult], MetricValue]) -> Sequence[Cell]:
    measures = {method.name: of(method) for method in run.methods}
    leaders = {method.name for method in best(run, measures, metric)} if len(run.methods) > 1 else set()
    return [name, *(cell(measures[method.name], winner=method.name in leaders) for method in run.methods)]


def score_table(run: Run, metric: str, rows: Iterable[Sequence[Cell]]) -> Html:
    about = "; ".join(
        part for part in (meaning_of(metric), direction(metric), f"in small print: {interval_name(run)}") if part
    )
    listed = list(rows)
    if len(run.methods) > MOST_COLUMNS and len(listed) < len(run.methods):
        return table(f"{label_of(metric)}: {about}", *turned(run, listed), kind="numbers")
    columns = ["Hospital", *(method.label for method in run.methods)]
    return table(f"{label_of(metric)}: {about}", columns, listed, kind="numbers")


def turned(run: Run, rows: Sequence[Sequence[Cell]]) -> tuple[list[str], list[list[Cell]]]:
    """A row a method instead of a column: many ways to train beside each other cannot be read."""
    columns = ["Model", *(str(row[0]) for row in rows)]
    return columns, [[method.label, *(row[place + 1] for row in rows)] for place, method in enumerate(run.methods)]


def differences(run: Run) -> Html:
    """The main measure and all hospitals together open, the rest folded."""
    entries = list(run.differences)
    if not entries:
        return Html("")
    many = len({d.site for d in entries}) > OPEN
    first = [d for d in entries if d.metric == run.metric and (d.site == ALL or not many)]
    rest = [d for d in entries if d not in first] if len(entries) <= 20 * LISTED else []
    parts = [difference_table(run, first)] if first else []
    if rest:
        parts.append(details(f"{len(rest):,} further comparisons", difference_table(run, rest)))
    return join(parts)


def difference_table(run: Run, entries: Sequence[MethodDifference]) -> Html:
    rows = []
    for d in entries:
        value = "not defined" if d.measure.value is None else numbers.with_sign(d.measure.value)
        word = d.verdict.strip() or "no verdict"
        sign = VERDICTS.get(word.split(maxsplit=1)[0].lower(), "")
        rows.append(
            [
                "All hospitals" if d.site == ALL else d.site,
                label_of(d.metric),
                Html(f"{safe(run.method(d.method).label)} against {safe(run.method(d.against).label)}"),
                value,
                numbers.interval(d.measure) or (f"none: {d.reason}" if d.reason else "none"),
                Html(f'<span class="sign" aria-hidden="true">{sign}</span> {safe(word)}'),
            ]
        )
    columns = ["Hospital", "Measure", "Models", "Difference", "Interval", "Verdict"]
    return table(f"Differences between models on the same {units_of(run)}", columns, rows, kind="differences")


def costs(run: Run) -> Html:
    columns: list[tuple[str, Callable[[Cost], float | None], Callable[[float], str]]] = [
        ("Traffic to hospitals", lambda c: c.bytes_down, numbers.traffic),
        ("Traffic from hospitals", lambda c: c.bytes_up, numbers.traffic),
        ("Time", lambda c: c.seconds, numbers.time),
        ("of which compiling", lambda c: c.compile_seconds, numbers.time),
        ("Energy (estimate)", lambda c: c.watt_hours, numbers.energy),
        ("CO₂ (estimate)", lambda c: c.co2_grams, numbers.mass),
    ]
    kept = [entry for entry in columns if any(entry[1](run.cost(method)) is not None for method in run.methods)]
    if not kept:
        return Html("")
    rows = []
    for method in run.methods:
        values = [(of(run.cost(method)), unit) for _, of, unit in kept]
        cells = ["not measured" if value is None else unit(value) for value, unit in values]
        rows.append([method.label, rounds_of(method), *cells])
    return table("What each model cost", ["Model", "Rounds", *(name for name, _, _ in kept)], rows)


def unit_costs(run: Run) -> Html:
    """Of studies with a [budget]: what a hospital's round cost, and a point of accuracy."""
    parts = []
    for title, suffix in (
        ("What each hospital's part of a round cost", "a_site_a_round"),
        ("What a percentage point of validation accuracy cost, beyond that after the first evaluation", "a_point"),
    ):
        rows = [
            [method.label, *unit_cells(method, suffix)] for method in run.methods if method.meters.get("operations")
        ]
        columns = ["Model", "Traffic", "Operations", "Time", "Energy (estimate)", "CO₂ (estimate)"]
        if suffix != "a_point":
            columns, rows = columns[:3] + columns[4:], [row[:3] + row[4:] for row in rows]
        parts += [table(title, columns, rows)] if rows else []
    return join(parts)


def unit_cells(method: MethodResult, suffix: str) -> list[str]:
    """Traffic, operations, time, energy and CO2 of a unit of work."""

    def told(meter: str, *names: str) -> float | None:
        said = [number(mapping(method.meters.get(meter)).get(f"{name}_{suffix}")) for name in names]
        return sum(one for one in said if one is not None) if any(one is not None for one in said) else None

    found: list[tuple[float | None, Callable[[float], str]]] = [
        (
            told("traffic", "bytes") if suffix == "a_point" else told("traffic", "bytes_down", "bytes_up"),
            numbers.traffic,
        ),
        (told("operations", "operations"), lambda value: f"{value:.3g}"),
        (told("operations", "seconds"), numbers.time),
        (told("energy", "watt_hours"), numbers.energy),
        (told("energy", "grams_co2"), numbers.mass),
    ]
    none = "none gained" if suffix == "a_point" else "not measured"
    return [none if value is None else unit(value) for value, unit in found]


def rounds_of(method: MethodResult) -> str:
    if method.rounds is None:
        return "unknown"
    words = f"{method.rounds:,}"
    if method.stopped_early:
        words += ", stopped early"
    if method.best_round is not None:
        words += f"; best: {method.best_round:,}"
    return words


def patients(run: Run) -> Html:
    if not run.hospitals or not any(hospital.patients for hospital in run.hospitals):
        return Html("")
    if len(run.hospitals) > LISTED:
        return Html("")
    outcome = run.task.positive
    last = f"With outcome ({plain(outcome)})" if outcome is not None else "With outcome"
    columns = ["Hospital", "Training", "Validation", "Test", "Total", last]
    rows = [patient_row(hospital) for hospital in run.hospitals]
    rows.append(patient_total(run.hospitals))
    units = units_of(run).capitalize()
    if not any(h.prevalence is not None for h in run.hospitals):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    whole = table(f"{units} at each hospital", columns, rows)
    return whole if len(run.hospitals) <= OPEN else details(f"{units} of all {len(run.hospitals):,} hospitals", whole)


def patient_row(hospital: SiteSummary) -> list[str]:
    parts = [hospital.train, hospital.validation, hospital.test, hospital.patients]
    known = "not known" if hospital.prevalence is None else numbers.share(hospital.prevalence)
    return [hospital.name, *(numbers.count(part) for part in parts), known]


def patient_total(hospitals: Sequence[SiteSummary]) -> list[str]:
    sums = [sum(getattr(h, part) or 0 for h in hospitals) for part in ("train", "validation", "test", "patients")]
    return ["All hospitals", *(f"{value:,}" for value in sums), Html("")]


def percentiles(run: Run) -> Html:
    """How scores spread over hospitals: the tenth worst, the middle, the tenth best."""
    rows = []
    for metric in run.metrics:
        for method in run.methods:
            own = {p: x for p, x in method.scores.percentiles.get(metric, {}).items() if x is not None}
            if own:
                values = [numbers.score(own[p]) if p in own else "unknown" for p in ("10", "50", "90")]
                rows.append([label_of(metric), method.label, *values])
    if not rows:
        return Html("")
    columns = ["Measure", "Model", "10th percentile", "Median", "90th percentile"]
    return table("Spread over hospitals (each hospital counts the same)", columns, rows, kind="percentiles")


def manifest(run: Run) -> Html:
    """What it takes to do the run again."""
    if not run.manifest:
        return Html("")
    rows = [[name, Html(f"<code>{safe(value)}</code>")] for name, value in flatten(run.manifest)]
    return details(
        "How this was made: versions, seed, hashes and study settings", table("Manifest", ["Key", "Value"], rows)
    )


def flatten(values: Json, under: str = "") -> Iterable[tuple[str, object]]:
    """Tables within tables as one list of dotted keys."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{under}{key}.")
        else:
            yield f"{under}{key}", value
