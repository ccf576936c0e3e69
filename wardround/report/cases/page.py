"""The page over many settings: which way to train did best where, how it went, and at what cost.

A method is called better or worse only where the paired comparison with the study's reference showed it. The courses of
single cases are read from their folders; a case whose rounds are gone is shown without them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from wardround.core.files import write_whole
from wardround.report import numbers
from wardround.report.cases.charts import course_chart, score_chart
from wardround.report.cases.equal_cost import budget_tables, budget_words
from wardround.report.fairness import poster as fairness_poster
from wardround.report.html.document import chart_figures, date_text, document, facts, notices
from wardround.report.html.markup import Html, bullets, details, join, paragraph, plain, safe, section, table
from wardround.report.metric_names import direction, is_lower_better, label_of
from wardround.report.run.asker_charts import asker_courses
from wardround.runs.cases_result import CaseMethodResult, CaseResult
from wardround.runs.fields import mapping
from wardround.runs.file_names import REPORT
from wardround.runs.read import read_manifest, read_result, read_rounds
from wardround.runs.result import CasesResult
from wardround.runs.run import read_run

COLUMNS = 6
"""Methods up to which each has a column in the terminal."""
SIGNS = {"better": "▲", "worse": "▼"}
BASELINES = ("local", "centralized")
"""What no hospital would call a model of its own made together with others."""


@dataclass(frozen=True)
class CasesView:
    """All cases with the labels that a reader sees."""

    result: CasesResult
    labels: Mapping[str, str]
    """Of the methods, in their order."""

    @property
    def name(self) -> str:
        return self.result.study or "cases"

    @property
    def against(self) -> str:
        return self.result.against

    @property
    def cases(self) -> tuple[CaseResult, ...]:
        return self.result.cases

    @property
    def is_single(self) -> bool:
        """Whether there is one way to train only."""
        return len(self.labels) < 2

    def label(self, method: str) -> str:
        return self.labels.get(method, method)

    def is_better(self, case: CaseResult, method: str) -> bool:
        return case.is_better(method, self.against)

    def is_worse(self, case: CaseResult, method: str) -> bool:
        return case.is_worse(method, self.against)

    def best(self, case: CaseResult) -> str | None:
        """The method with the best value, if more than chance speaks for it; else none.

        Another than the reference must be better than it; the reference itself must be better than all others.
        """
        lower = is_lower_better(case.metric)
        known = {name: one.value for name, one in case.methods.items() if one.value is not None}
        if lower is None or not known:
            return None
        top = (min if lower else max)(known, key=lambda name: known[name])
        others = [self.is_worse(case, name) for name in case.methods if name != self.against]
        shown = all(others) and others if top == self.against else self.is_better(case, top)
        return top if shown else None


def view_of(result: CasesResult) -> CasesView:
    names = {one.name: one.label or one.name for one in result.methods}
    # Two methods of one label (two settings of one algorithm) are told apart by their names.
    twice = {label for label in names.values() if list(names.values()).count(label) > 1}
    return CasesView(result, {name: f"{label} ({name})" if label in twice else label for name, label in names.items()})


def write_cases_report(folder: Path) -> Path:
    """Writes `report.html` into the folder of a run with cases and returns its path."""
    target = Path(folder) / REPORT
    write_whole(target, cases_page(Path(folder)).encode("utf-8"))
    return target


def cases_page(folder: Path) -> Html:
    """The whole document."""
    found, manifest = read_result(folder), read_manifest(folder) or {}
    assert found is not None
    result = found.result
    assert isinstance(result, CasesResult)
    view = view_of(result)
    when = "finished" if manifest.get("finished") else "started"
    subtitle = [Html("Many settings compared")]
    if manifest.get(when):
        subtitle.append(Html(f"{when} {safe(date_text(manifest[when]))}"))
    poster = fairness_poster.poster_section(folder, result)
    further = fairness_poster.poster_summary(folder, result)
    short = paragraph(join([summary(view), *([safe(further)] if further else [])], " "), "summary")
    cannot = [*limits(view), *fairness_poster.limits(folder, result), *(safe(note) for note in result.notes)]
    content = join(
        [
            notices(safe(remark) for remark in found.remarks),
            section("summary", "In short", short, key_figures(view)),
            section("fairness", "Privacy, uneven data and fairness", poster),
            section("limits", "What this cannot tell", bullets(cannot)),
            # With a single way to train the tables above say all, and there is nothing to compare it with.
            Html("") if view.is_single and poster else table_section(view),
            Html("") if view.is_single else comparison_sections(folder, view),
            section("reports", "The report of each setting", links(view)),
        ]
    )
    return document(view.name, join(subtitle, " · "), content, manifest)


def table_section(view: CasesView) -> Html:
    return section("table", "All settings, all ways to train", table_words(view), score_table(view))


def comparison_sections(folder: Path, view: CasesView) -> Html:
    """Ways to train side by side: setting by setting, round by round, and at equal cost."""
    return join(
        [
            section(
                "plots", "Each setting", chart_figures("plots", [score_chart(view.labels, case) for case in view.cases])
            ),
            section("courses", "Round by round", course_words(), *(course_part(folder, view, c) for c in view.cases)),
            section("budgets", "At equal cost", budget_words(), *budget_tables(view)),
        ]
    )


def count_of_settings(count: int, of: int) -> str:
    return f"{'none' if not count else 'all' if count == of and of > 1 else count} of the {of} settings"


def case_names(cases: Sequence[CaseResult], most: int = 6) -> str:
    titles = [plain(case.title) for case in cases]
    return ", ".join(titles[:most]) + (f" and {len(titles) - most} more" if len(titles) > most else "")


def summary(view: CasesView) -> Html:
    """One paragraph that claims only what is more than chance."""
    if not view.cases:
        return Html("No setting is finished yet.")
    count, reference = len(view.cases), view.label(view.against)
    turns = ", each hospital asking in turn" if view.result.users == "each" else ""
    if view.is_single:
        return safe(
            f"“{plain(reference)}” was trained in {count} settings and tried on patients whom it had not seen{turns}."
        )
    personal = [name for name in view.labels if name not in (view.against, *BASELINES)]
    together = [case for case in view.cases if any(view.is_better(case, name) for name in personal)]
    words = [
        f"{len(view.labels)} ways to train were compared in {count} settings, on patients whom the models had not "
        f"seen{turns}. “{plain(reference)}” is the reference for the others."
    ]
    if personal:
        which = f" ({case_names(together)})" if together else ""
        words.append(
            f"In {count_of_settings(len(together), count)} at least one other model trained together was better, and "
            f"chance does not explain it{which}."
        )
    for name in [n for n in view.labels if n != view.against]:
        won = [case for case in view.cases if view.is_better(case, name)]
        lost = [case for case in view.cases if view.is_worse(case, name)]
        if won or lost:
            said = [f"better in {len(won)}" if won else "", f"worse in {len(lost)}" if lost else ""]
            words.append(f"{plain(view.label(name))}: {' and '.join(filter(None, said))}.")
    quiet = [plain(view.label(n)) for n in view.labels if n != view.against and not has_verdict(view, n)]
    if quiet:
        words.append(f"No difference is shown in any setting for: {', '.join(quiet)}.")
    return safe(" ".join(words))


def has_verdict(view: CasesView, method: str) -> bool:
    return any(view.is_better(case, method) or view.is_worse(case, method) for case in view.cases)


def key_figures(view: CasesView) -> Html:
    return facts(
        [
            ("Settings", f"{len(view.cases):,}"),
            ("Ways to train", f"{len(view.labels):,}"),
            ("Repeats of each", f"{max((case.repeats or 1 for case in view.cases), default=0):,}"),
            ("Patients in the largest setting", f"{max((case.patients for case in view.cases), default=0):,}"),
        ]
    )


def limits(view: CasesView) -> list[Html]:
    expected = 0.05 * len(view.cases)
    made = Html(
        "Sites that were made by dividing one data set are not real hospitals: they show one kind of difference only."
    )
    if view.is_single:
        return [made]
    return [
        Html(
            f"If there were no difference at all, about {expected:.1g} of {len(view.cases)} settings would still show "
            "one by chance."
        ),
        Html(
            "“No difference shown” does not prove that there is none: settings with few patients can hardly show any."
        ),
        Html("Only differences from the reference were tested; whether two other methods differ is not known."),
        made,
        Html(
            "The tables at equal cost use the validation patients by which rates were chosen, so they give no verdict."
        ),
    ]


def table_words(view: CasesView) -> Html:
    return paragraph(
        Html(
            "The mean over hospitals, each counting by its test patients, and over repeats; in small print the "
            "interval, and the learning rate where it was chosen. ▲ better and ▼ worse than "
            f"<em>{safe(view.label(view.against))}</em>, beyond chance. "
            "Bold: the best value of a row, only where it is beyond chance."
        )
    )


def score_table(view: CasesView) -> Html:
    columns = [Html("Setting"), *(safe(label) for label in view.labels.values())]
    rows = []
    for case in view.cases:
        best = view.best(case)
        size = f"{len(case.sites)} hospitals, {case.patients:,} patients"
        about = f"{label_of(case.metric)}, {direction(case.metric)}; {size}"
        head = join([safe(case.title), Html(f'<span class="interval">{safe(about)}</span>')], " ")
        cells = [
            score_cell(case.methods.get(name), case.verdict(name, view.against), winner=name == best)
            for name in view.labels
        ]
        rows.append([head, *cells])
    return table("The main measure of every setting", columns, rows)


def score_cell(score: CaseMethodResult | None, verdict: str, *, winner: bool) -> Html:
    if score is None or score.value is None:
        reason = score.reason if score else "not compared"
        return Html(f'<span class="undefined">not defined: {safe(reason)}</span>')
    value = safe(numbers.score(score.value))
    shown = Html(f"<strong>{value}</strong>") if winner else value
    sign = SIGNS.get(verdict, "")
    if sign:
        shown = Html(f'{shown} <span aria-hidden="true">{sign}</span><span class="sr"> ({safe(verdict)})</span>')
    small = [numbers.interval(score), f"rate {score.rate:g}" if score.rate is not None else ""]
    return join([shown, *(Html(f'<span class="interval">{safe(part)}</span>') for part in small if part)], " ")


def course_words() -> Html:
    return paragraph(
        Html(
            "The first repeat, as each asking hospital sees it. Above: the error on its own validation patients "
            "(lower is better). Below: how much each hospital counts in its model by Weight Erosion, where that was "
            "compared; the asking hospital always counts 1. Where a study follows test patients, full lines are the "
            "share of them classified rightly, red dashed ones the same answer for every patient, dotted ones weights."
        )
    )


def course_part(folder: Path, view: CasesView, case: CaseResult) -> Html:
    place = folder / "cases" / case.name
    records, _ = read_rounds(place)
    name = case.name.replace(".", "-")
    if any("test_accuracy" in mapping(record.get("measures")) for record in records):
        followed = asker_courses(read_run(place))
        return join([Html(f"<h3>{safe(case.title)}</h3>"), chart_figures(f"askers-{name}", list(followed))])
    chart = course_chart(view.labels, view.against, case.title, records)
    return details(case.title, chart_figures(f"courses-{name}", [chart])) if chart else Html("")


def links(view: CasesView) -> Html:
    return bullets(
        Html(f'<a href="cases/{safe(case.name)}/{REPORT}">{safe(case.title)}</a>') for case in view.cases if case.name
    )


def cases_table(result: CasesResult) -> Table:
    """For the terminal: a case a row; a method a column, or where these are too many what stands out."""
    view = view_of(result)
    shown = Table(title=Text(f"{plain(view.name)}: {len(view.cases)} settings"), title_justify="left")
    shown.add_column(Text("setting"))
    if len(view.labels) > COLUMNS:
        heads = [plain(view.label(view.against)), "best value (may be chance)", "better ▲", "worse ▼"]
    else:
        heads = [plain(label) for label in view.labels.values()]
    for head in heads:
        shown.add_column(Text(head))
    for case in view.cases:
        cells = short_row(view, case) if len(view.labels) > COLUMNS else whole_row(view, case)
        shown.add_row(Text(f"{plain(case.title)} ({label_of(case.metric)})"), *cells)
    return shown


def whole_row(view: CasesView, case: CaseResult) -> list[Text]:
    best = view.best(case)
    cells = []
    for name in view.labels:
        score = case.methods.get(name)
        value = score.value if score else None
        sign = SIGNS.get(case.verdict(name, view.against), "")
        words = "not defined" if value is None else f"{numbers.score(value)} {sign}".strip()
        cells.append(Text(words, style="bold" if name == best else ""))
    return cells


def short_row(view: CasesView, case: CaseResult) -> list[Text]:
    """The reference, whoever has the best value, and those that differ from the reference by more than chance."""
    known = {name: one.value for name, one in case.methods.items() if one.value is not None}
    lower = is_lower_better(case.metric)
    top = (min if lower else max)(known, key=lambda name: known[name]) if known and lower is not None else None
    marked = [
        ", ".join(name for name in view.labels if of(case, name)) or "none shown"
        for of in (view.is_better, view.is_worse)
    ]
    return [
        Text(numbers.score(known[view.against]) if view.against in known else "not defined"),
        Text(
            "not known" if top is None else f"{numbers.score(known[top])} {plain(top)}",
            style="bold" if top is not None and top == view.best(case) else "",
        ),
        *(Text(plain(words)) for words in marked),
    ]
