"""Fairness in the report of a run: how the model fares for groups of patients, in words and in tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wardround.report import numbers
from wardround.report.html.markup import Cell, Html, bullets, details, join, paragraph, plain, safe, table
from wardround.report.metric_names import label_of
from wardround.report.run.tables import cell
from wardround.runs.fields import whole
from wardround.runs.result import MethodResult
from wardround.runs.scores import NOT_MEASURED, FairnessColumn, FairnessScores, MetricValue
from wardround.runs.sites import PredictionTask

BETWEEN = {
    "equal_opportunity_gap": "Equal opportunity: gap in the share found",
    "equal_odds_gap": "Equal odds: the larger gap, found or falsely alarmed",
    "selection_gap": "Gap in the share with an alarm",
    "differential_fairness": "Differential fairness (smoothed)",
    "differential_fairness_unsmoothed": "Differential fairness (unsmoothed)",
}
INDEX = "generalized_entropy_index"
OWN = {"selection_rate": "Share with an alarm", "false_positive_rate": "Falsely alarmed", "rows": "Patients"}
MOST_SPOKEN = 4
"""Groups up to which each is named in a sentence; of more, the two ends."""


@dataclass(frozen=True)
class MethodFairness:
    """One method's fairness, under the name that a reader sees."""

    label: str
    scores: FairnessScores


@dataclass(frozen=True)
class PredictedOutcome:
    """What the model looks for: the target and the class."""

    target: str
    positive: str


def fairness_of(methods: Sequence[MethodResult]) -> tuple[MethodFairness, ...]:
    """Methods without groups are left out."""
    return tuple(
        MethodFairness(method.label, method.fairness)
        for method in methods
        if method.fairness is not None and method.fairness.columns
    )


def left_out_groups(column: FairnessColumn) -> tuple[str, ...]:
    """Groups with too few patients who have the outcome to count in the gap of equal opportunity."""
    gap = column.between.get("equal_opportunity_gap")
    return gap.left_out if gap else ()


def fairness_section(found: Sequence[MethodFairness], task: PredictionTask) -> Html:
    """The whole section; nothing where no method tells of groups."""
    if not found:
        return Html("")
    outcome = PredictedOutcome(task.target or "the outcome", task.positive or "")
    names = list(dict.fromkeys(name for one in found for name in one.scores.columns))
    parts = []
    for name in names:
        both = [(one, one.scores.columns[name]) for one in found if name in one.scores.columns]
        spoken = [words for one, column in both if (words := sentence(one, column, outcome, alone=len(found) == 1))]
        inside = join([bullets(spoken) if spoken else Html(""), group_table(name, both), withheld_groups(both)])
        # Crossings of columns come last and are many: folded away.
        parts.append(
            details(f"By {plain(name)}", inside) if " and " in name else with_heading(f"By {plain(name)}", inside)
        )
    return join([explanation(), *parts, between_table(found)])


def with_heading(title: str, inside: Html) -> Html:
    return join([Html(f"<h3>{safe(title)}</h3>"), inside])


def explanation() -> Html:
    return paragraph(
        Html(
            "A model can be good on average and still serve one group of patients worse than another. Differences "
            "between groups may come from the data (who was recorded, and how) as well as from the model; these "
            "figures show that there is a difference, not why."
        )
    )


def sentence(one: MethodFairness, column: FairnessColumn, outcome: PredictedOutcome, *, alone: bool) -> Html:
    """How many of those with the outcome are found in each group, and whether chance could explain the gap."""
    survival = any("c_index" in own.metrics for own in column.groups.values())
    metric = "c_index" if survival else "recall"
    recalls = {
        name: own.metrics[metric]
        for name, own in column.groups.items()
        if own.metrics.get(metric, NOT_MEASURED).value is not None and name not in left_out_groups(column)
    }
    if len(recalls) < 2:
        return Html("")
    rising = sorted(recalls, key=lambda name: recalls[name].value or 0.0)
    named = rising if len(rising) <= MOST_SPOKEN else [rising[0], rising[-1]]
    listed = [f"{plain(name)} {numbers.share(recalls[name].value or 0.0)}" for name in named]
    who = f"with {plain(outcome.target)} {plain(outcome.positive)}" if outcome.positive else "with the outcome"
    model = "the model" if alone else f"“{plain(one.label)}”"
    most = "" if len(named) == len(rising) else f" These are the two ends of {len(rising)} groups."
    if survival:
        listed = [f"{plain(name)} {recalls[name].value or 0.0:.2f}" for name in named]
        first = f"How well {model} orders patients by risk (C-index, 0.5 is guessing): {', '.join(listed)}.{most}"
        return safe(f"{first} {overlap_sentence(recalls[rising[0]], recalls[rising[-1]])}".strip())
    first = f"Share of patients {who} that {model} finds: {', '.join(listed)}.{most}"
    return safe(f"{first} {overlap_sentence(recalls[rising[0]], recalls[rising[-1]])}".strip())


def overlap_sentence(low: MetricValue, high: MetricValue) -> str:
    """Whether the intervals of the two ends keep apart, which is a strict sign of more than chance."""
    if low.high is None or high.low is None:
        return ""
    if low.high < high.low:
        return "The intervals of the two ends do not overlap: the difference is larger than chance would explain."
    return "The intervals of the two ends overlap, so no difference between them is shown."


def group_table(name: str, both: Iterable[tuple[MethodFairness, FairnessColumn]]) -> Html:
    kept = list(both)
    metrics = list(dict.fromkeys(m for _, column in kept for own in column.groups.values() for m in own.metrics))
    rows = []
    for one, column in kept:
        for group, own in column.groups.items():
            title = safe(group) if len(kept) == 1 else join([safe(group), safe(one.label)], ", ")
            count = whole(own.rows)
            cells = [cell(own.metrics.get(metric, NOT_MEASURED)) for metric in metrics]
            rows.append([title, safe("" if count is None else f"{count:,}"), *cells])
    if not rows:
        return Html("")
    columns = [Html("Group"), Html("Patients"), *(safe(OWN.get(metric, label_of(metric))) for metric in metrics)]
    return table(f"Test patients by {plain(name)}", columns, rows)


def withheld_groups(both: Iterable[tuple[MethodFairness, FairnessColumn]]) -> Html:
    """Who is not told of, and who does not count in the gaps."""
    one, column = next(iter(both))
    few = f"fewer than {one.scores.smallest} test patients" if one.scores.smallest else "too few test patients"
    words = []
    if column.withheld:
        words.append(f"Withheld because of {few}: {', '.join(plain(name) for name in column.withheld)}.")
    if apart := left_out_groups(column):
        names = ", ".join(plain(name) for name in apart)
        words.append(f"Not in the gap of equal opportunity because too few patients have the outcome: {names}.")
    return paragraph(safe(" ".join(words))) if words else Html("")


def between_table(found: Sequence[MethodFairness]) -> Html:
    """How far groups are apart, in one number for each definition of fairness."""
    rows: list[list[Cell]] = []
    everything = [column.between for one in found for column in one.scores.columns.values()]
    measures = [key for key in BETWEEN if any(key in between for between in everything)]
    for one in found:
        for name, column in one.scores.columns.items():
            title = safe(name) if len(found) == 1 else join([safe(name), safe(one.label)], ", ")
            rows.append([title, *(cell(column.between.get(key, NOT_MEASURED)) for key in measures)])
    if not measures:
        return Html("")
    whole_set = [
        f"{plain(one.label)} {numbers.score(index.value)}"
        for one in found
        if (index := one.scores.generalized_entropy_index) is not None and index.value is not None
    ]
    entropy = (
        f"Generalized entropy index (alpha 2; how unequally patients benefit, whatever their group; 0 is equality): "
        f"{'; '.join(whole_set)}."
        if whole_set
        else ""
    )
    words = (
        "For all of these 0 is fair. Gaps are between the groups with the highest and the lowest rate. Differential "
        "fairness e means: each decision is at most exp(e) times as frequent in one group as in another."
    )
    columns = [Html("Groups by"), *(safe(BETWEEN[key]) for key in measures)]
    return join([table("How far groups are apart", columns, rows), paragraph(safe(f"{words} {entropy}".strip()))])
