"""What is said of privacy, uneven data and fairness, in words: the verdict on each claim and the numbers behind it."""

from collections.abc import Mapping, Sequence

from wardround.evaluate.fairness_claims import Claim, Trial
from wardround.report import numbers
from wardround.report.fairness.section import BETWEEN, INDEX
from wardround.report.html.markup import Html, join, paragraph, plain, safe, table
from wardround.report.metric_names import label_of
from wardround.runs.scores import MetricValue

MEANINGS = (
    "Generalized entropy index: how unequally patients benefit from the decisions, whatever their group.",
    "Differential fairness e: each decision is at most exp(e) times as frequent in one group as in another.",
    "Equal opportunity: the recall of the group served best minus that of the group served worst.",
    "Equal odds: the larger of that gap and the same gap in false alarms.",
    "Overfitting: the loss on new patients minus the loss on the patients learned from.",
)
SAYS = {"for": "for it", "against": "against it", "open": "nothing shown"}


def title_of(column: str) -> str:
    """A column's name at the beginning of a label."""
    name = plain(column)
    return name[:1].upper() + name[1:]


def label(name: str) -> str:
    """A figure's name in words: "race/recall/White" is the recall of a group."""
    column, _, rest = name.partition("/")
    if rest.startswith("recall/"):
        return f"Recall of {plain(rest.removeprefix('recall/'))} ({plain(column)})"
    if rest:
        return f"{title_of(column)}: {BETWEEN.get(rest, rest).partition(':')[0].removesuffix(' (smoothed)').lower()}"
    # Not the mean over sites that other tables call by the metric's bare name.
    own = f"{label_of(name)} over all patients"
    return {INDEX: "Generalized entropy index", "overfitting": "Overfitting"}.get(name, own)


def claim_answers(claims: Sequence[Claim]) -> Html:
    """One row a claim: the verdict, how many tests it rests on, and what was seen."""
    rows = [
        [
            safe(claim.words),
            join(
                [
                    Html(f"<strong>{safe(claim.verdict.capitalize())}</strong>"),
                    Html(f'<span class="interval">{safe(claim.tally_text)}</span>'),
                ],
                " ",
            ),
            observed_change(claim),
        ]
        for claim in claims
    ]
    rule = (
        "A claim is borne out where at least half of its tests speak for it beyond chance and none against it, "
        "contradicted where it is the other way round; a claim about two measures needs this of each. "
        "One test is one measure in one way of dividing the patients among sites."
    )
    heads = [Html(head) for head in ("Claim", "What these data say", "What was seen, on average")]
    return join([table("Claims, and what these data say", heads, rows), paragraph(safe(rule))])


def observed_change(claim: Claim) -> Html:
    """Both ends of what each measure was tested for, averaged over the ways to deal patients out."""
    lines = []
    for name in dict.fromkeys(test.what for test in claim.tests):
        before, after = claim.mean_ends(name)
        if before is not None and after is not None:
            lines.append(safe(f"{label(name)}: {numbers.score(before)} → {numbers.score(after)}"))
    if not lines:
        return Html("")
    head = Html(f'<span class="interval">{safe(" → ".join(claim.ends))}</span>')
    return join([head, join(lines, "<br>")], " ")


def claim_tests(claim: Claim, partitions: Mapping[str, str]) -> Html:
    """Every test of a claim with its numbers."""
    said = ("Measure, setting", *(end.capitalize() for end in claim.ends))
    heads = (*said, "What was tested (expected above 0, if not said otherwise)", "p", "Says")
    rows = [
        [
            safe(f"{label(test.what)}, {partitions.get(test.partition, test.partition)}"),
            *(safe("" if value is None else numbers.score(value)) for value in (test.before, test.after)),
            trial_cell(test),
            safe("" if test.found.p_value is None else f"{test.found.p_value:.2g}"),
            safe(SAYS[test.standing]),
        ]
        for test in claim.tests
    ]
    caption = f"{claim.words} {claim.verdict.capitalize()}."
    return join(
        [paragraph(safe(f"{claim.words} {claim.tested}")), table(caption, [Html(safe(head)) for head in heads], rows)]
    )


def trial_cell(test: Trial) -> Html:
    found = test.found
    if found.value is None:
        return Html(f'<span class="undefined">{safe(found.reason or "not defined")}</span>')
    reach = numbers.interval(MetricValue(value=found.value, low=found.low, high=found.high)) or found.reason
    expected = "" if test.within is None else f", expected within {numbers.score(test.within)} of 0"
    shown = Html(f'<span class="interval">{safe(f"{reach}{expected}")}</span>')
    return join([safe(numbers.with_sign(found.value)), shown], " ")
