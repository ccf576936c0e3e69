"""The page of `gaps`: the answer, the verdict table, the differences as plots, and the stop-gap."""

from collections.abc import Callable, Sequence

from wardround.report.explain.tables import p_value, share
from wardround.report.html.charts import Chart, layout
from wardround.report.html.document import chart_figures, date_text, document, notices, remark_list
from wardround.report.html.markup import (
    Cell,
    FigureCell,
    Html,
    bullets,
    chart_label,
    join,
    paragraph,
    plain,
    safe,
    section,
    table,
)
from wardround.report.html.palette import INK, colour
from wardround.runs.explain.gaps_result import GapDifference, GapsResult, PracticeGap
from wardround.runs.fields import Json

MARKS = {"gap": "★", "performance": "P", "entropy": "E", "": "–"}


def gaps_page(result: GapsResult, manifest: Json, remarks: Sequence[str] = ()) -> Html:
    """The whole document."""
    first, *rest = result.words or ("Nothing was compared.",)
    parts = [
        notices(safe(one) for one in remarks),
        section(
            "answer", "The answer", paragraph(safe(first), "answer"), bullets(map(safe, rest)) if rest else Html("")
        ),
        section("verdicts", "Where a gap may be", *verdicts(result)),
        section("own", "Each model at home", chart_figures("own", [own_chart(result)])),
        section("differences", "Differences on the same patients", *differences(result)),
        section("stop", "Another hospital's model as a stop-gap", *stop_gaps(result)),
        section("limits", "What this cannot tell", bullets(map(safe, limits(result))), remark_list(result.notes)),
    ]
    return document(result.study, subtitle(result, manifest), join(parts), manifest)


def subtitle(result: GapsResult, manifest: Json) -> Html:
    words = [safe(f"Practice gaps: {plain(result.question)}")]
    if manifest.get("finished"):
        words.append(safe(f"finished {date_text(manifest['finished'])}"))
    return join(words, " · ")


def verdicts(result: GapsResult) -> list[Html]:
    columns = ["at", "against", *result.practices]
    made = []
    for caption, verdict in (
        ("Before controlling for the number of patients", lambda gap: gap.verdict),
        ("With as many training patients on both sides", lambda gap: gap.sized_verdict or gap.verdict),
    ):
        made.append(table(caption, columns, verdict_rows(result, verdict)))
    meaning = (
        "★: a potential gap: the other model is better here, or as good with more consistent scores. "
        "P: no gap, the own model performs better. E: no gap, the own scores are as consistent, "
        "or the other model gives nearly everybody the same score, which is not consistency."
    )
    return [paragraph(safe(meaning)), *made]


def verdict_rows(result: GapsResult, verdict: Callable[[PracticeGap], str]) -> list[list[str]]:
    found = {(gap.organisation, gap.other, gap.practice): MARKS.get(verdict(gap), "–") for gap in result.gaps}
    pairs = dict.fromkeys((gap.organisation, gap.other) for gap in result.gaps)
    return [[a, b, *(found.get((a, b, practice), "") for practice in result.practices)] for a, b in pairs]


def own_chart(result: GapsResult) -> Chart | None:
    known = [one for one in result.own if one.value is not None]
    if not known:
        return None
    names = list(dict.fromkeys(one.practice for one in known))
    traces = []
    for at, organisation in enumerate(dict.fromkeys(one.organisation for one in known)):
        own = [one for one in known if one.organisation == organisation]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": chart_label(organisation),
                "x": [names.index(one.practice) + 0.12 * at for one in own],
                "y": [one.value for one in own],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [(one.high or 0) - (one.value or 0) for one in own],
                    "arrayminus": [(one.value or 0) - (one.low or 0) for one in own],
                    "color": colour(at),
                },
                "marker": {"size": 9, "color": colour(at)},
            }
        )
    ticks = {"tickvals": list(range(len(names))), "ticktext": [chart_label(name, 20) for name in names]}
    return Chart(
        f"Each organisation's model on its own test patients: {result.metric}, 95 % intervals",
        "One point for each practice and organisation.",
        traces,
        layout(340, x={**ticks, "showgrid": False}, y={"title": {"text": result.metric}}),
        340,
    )


def differences(result: GapsResult) -> list[Html]:
    words = (
        "Own model less the other, on the own test patients. Performance: a line wholly to the right says that the own "
        "model is better. Entropy: a line wholly to the right says that the own scores are less consistent. "
        "Intervals hold "
        f"for all {len(result.gaps)} comparisons together (Bonferroni)."
    )
    charts = [
        difference_chart(f"Performance ({result.metric})", result.gaps, lambda gap: gap.performance),
        difference_chart("Entropy of the scores, bits", result.gaps, lambda gap: gap.entropy),
    ]
    sized = [
        difference_chart(f"Performance ({result.metric}), equal sizes", result.gaps, lambda gap: gap.sized_performance),
        difference_chart("Entropy of the scores, equal sizes", result.gaps, lambda gap: gap.sized_entropy),
    ]
    rows: list[list[Cell]] = [
        [
            gap.practice, gap.organisation, gap.other, f"{gap.train_rows:,} / {gap.other_train_rows:,}",
            f"{gap.test_rows:,}", cell(gap.performance), cell(gap.entropy), cell(gap.sized_performance),
            cell(gap.sized_entropy), p_value(gap.holm_p),
        ]
        for gap in result.gaps
    ]  # fmt: skip
    columns = [
        "practice", "at", "against", "training rows", "test rows", "performance", "entropy", "performance, equal size",
        "entropy, equal size", "entropy p (Holm)",
    ]  # fmt: skip
    return [
        paragraph(safe(words)),
        chart_figures("plain", charts),
        chart_figures("sized", sized),
        table("All differences", columns, rows),
    ]


def cell(one: GapDifference | None) -> FigureCell:
    if one is None or one.value is None:
        return FigureCell("–")
    span = () if one.low is None or one.high is None else (f"{one.low:+.2f} to {one.high:+.2f}",)
    return FigureCell(f"{one.value:+.3f}", span)


def difference_chart(
    title: str, gaps: Sequence[PracticeGap], of: Callable[[PracticeGap], GapDifference | None]
) -> Chart | None:
    known = [(gap, found) for gap in gaps if (found := of(gap)) is not None and found.value is not None]
    if not known:
        return None
    names = [f"{gap.practice}: {gap.organisation} vs {gap.other}" for gap, _ in known]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [found.value for _, found in known],
        "y": list(range(len(known))),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [(found.high or 0) - (found.value or 0) for _, found in known],
            "arrayminus": [(found.value or 0) - (found.low or 0) for _, found in known],
            "color": colour(0),
        },
        "marker": {"size": 8, "color": colour(0)},
        "showlegend": False,
    }
    height = 110 + 24 * len(known)
    axis = {
        "tickvals": list(range(len(names))),
        "ticktext": [chart_label(name, 44) for name in names],
        "range": [len(names) - 0.5, -0.5],
        "showgrid": False,
    }
    zero = {"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": INK, "dash": "dot"}}
    return Chart(
        f"{title}: own less other",
        "; ".join(f"{name}: {found.value:+.3f}" for name, (_, found) in zip(names, known, strict=True)),
        [trace],
        layout(height, x={"title": {"text": "own less other"}}, y=axis, shapes=[zero]),
        height,
    )


def stop_gaps(result: GapsResult) -> list[Html]:
    tried = [gap for gap in result.gaps if gap.stop_gap is not None]
    if not tried:
        return []
    rows = []
    for gap in tried:
        stop = gap.stop_gap
        assert stop is not None
        changed = (stop.right or 0) + (stop.wrong or 0)
        rows.append(
            [
                gap.practice, gap.organisation, gap.other, p_value(stop.train_p), f"{stop.rows:,}",
                f"{stop.handled:,}" if stop.used else "–",
                f"{stop.right} of {changed} ({share(stop.success)})" if stop.used else "–",
                p_value(stop.test_p) if stop.used else "–",
            ]
        )  # fmt: skip
    columns = [
        "practice", "at", "model of", "validation p", "test rows", "handled by the other", "became right", "test p"
    ]  # fmt: skip
    words = "Until the practice itself is looked into, the other model may decide for those about whom it knows more."
    return [paragraph(safe(words)), table("Classifier selection as a stop-gap", columns, rows)]


def limits(result: GapsResult) -> list[str]:
    said = [
        "A more consistent model may come from more consistent care, from cleaner records, or from chance that "
        "is left: "
        "a star is a reason to look at the practice, no proof.",
        "A model that says nearly the same of everybody is consistent because it learned nothing; it makes no star.",
    ]
    return said + [f"Left out: {name}: {why}" for name, why in result.left_out.items()][:20]
