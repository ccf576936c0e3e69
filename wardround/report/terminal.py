"""The results for the terminal: scores by hospital and method, or with whom to train and why."""

from rich.table import Table
from rich.text import Text

from wardround.report import numbers
from wardround.report.html.markup import plain
from wardround.report.metric_names import direction, label_of
from wardround.report.partners import text as words
from wardround.report.partners.answer import partnership_of
from wardround.report.partners.charts import with_error
from wardround.report.run.ranking import best_at, best_overall
from wardround.report.unit import units_of
from wardround.runs.result import MethodResult, PartnersResult, RunResult
from wardround.runs.run import Run, run_of
from wardround.runs.scores import MetricValue

MOST_COLUMNS = 5
"""Methods up to which each has a column on a screen."""
ROWS = 20
"""Hospitals up to which each has a row; of more, only the totals and percentiles are shown."""


def summary_table(result: RunResult) -> Table:
    """What a result says about the main measure, short enough for a screen."""
    run = run_of(result)
    title = ", ".join(part for part in (label_of(run.metric), direction(run.metric)) if part)
    # Names go in as Text, never as strings: a string such as "[red]" would be taken for a style.
    shown = Table(title=Text(f"{plain(run.name)}: {title}"), title_justify="left", caption_justify="left")
    if len(run.methods) > MOST_COLUMNS:
        return methods_in_rows(shown, run)
    shown.add_column(Text("hospital"))
    for method in run.methods:
        shown.add_column(Text(plain(method.label)))
    if len(run.hospitals) <= ROWS:
        for hospital in run.hospitals:
            leaders = best_at(run, hospital.name, run.metric)
            cells = [score_text(m.at(hospital.name, run.metric), m, leaders, run) for m in run.methods]
            shown.add_row(Text(plain(hospital.name)), *cells)
        shown.add_section()
    else:
        for percentile, name in (("10", "10th percentile"), ("50", "median"), ("90", "90th percentile")):
            values = [m.scores.percentiles.get(run.metric, {}).get(percentile) for m in run.methods]
            if any(value is not None for value in values):
                cells = [Text("unknown" if value is None else numbers.score(value)) for value in values]
                shown.add_row(Text(f"{name} over hospitals"), *cells)
    if len(run.hospitals) != 1 and any(run.metric in method.scores.weighted for method in run.methods):
        leaders = best_overall(run, run.metric)
        totals = [score_text(m.over_all(run.metric), m, leaders, run) for m in run.methods]
        shown.add_row(Text(f"all, by {units_of(run)}"), *totals)
    return shown


def methods_in_rows(shown: Table, run: Run) -> Table:
    """Many ways to train: a row each, with the hospitals beside each other where they are few."""
    hospitals = run.hospitals if 1 < len(run.hospitals) <= MOST_COLUMNS else ()
    shown.add_column(Text("model"))
    shown.add_column(Text(f"all, by {units_of(run)}"))
    for hospital in hospitals:
        shown.add_column(Text(plain(hospital.name)))
    leaders = best_overall(run, run.metric)
    by_hospital = {hospital.name: best_at(run, hospital.name, run.metric) for hospital in hospitals}
    for method in run.methods:
        own = [
            score_text(method.at(name, run.metric), method, best, run, short=True) for name, best in by_hospital.items()
        ]
        whole = score_text(method.over_all(run.metric), method, leaders, run)
        shown.add_row(Text(plain(method.label)), whole, *own)
    return shown


def score_text(
    measure: MetricValue, method: MethodResult, leaders: tuple[MethodResult, ...], run: Run, *, short: bool = False
) -> Text:
    """A score, bold where it is the best, with its interval unless it must be short."""
    if measure.value is None:
        return Text(f"not defined: {plain(measure.reason)}", style="italic")
    winner = method in leaders and len(run.methods) > 1
    text = Text(numbers.score(measure.value), style="bold" if winner else "")
    span = "" if short else numbers.interval(measure)
    return text.append(f" ({span})", style="not bold dim") if span else text


def partners_table(result: PartnersResult) -> Table:
    """With whom to train: the answer on top, then every hospital's verdict, score and what sets its patients apart."""
    asked = partnership_of(result)
    shown = Table(
        title=Text(plain(words.headline(asked)), style="bold"),
        title_justify="left",
        caption=Text(plain("\n".join(one for one in (asked.gain.words, asked.method) if one)))
        if asked.gain.words
        else None,
        caption_justify="left",
    )
    for name in ("hospital", "verdict", "score ± error", "main difference"):
        shown.add_column(Text(name))
    listed = asked.candidates[:ROWS]
    for site in listed:
        score, standing = asked.scores.get(site), asked.status(site)
        difference = asked.main_difference(site)
        shown.add_row(
            Text(plain(site), style="bold" if standing == "partner" else ""),
            Text(standing, style="bold" if standing == "partner" else ""),
            Text(with_error(score) if score else "none"),
            Text(plain(difference) if difference else ""),
        )
    if len(listed) < len(asked.candidates):
        shown.add_section()
        shown.add_row(Text(f"and {len(asked.candidates) - len(listed):,} more"), Text(""), Text(""), Text(""))
    return shown
