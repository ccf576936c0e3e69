"""Decision curves: is acting on the model better than treating everybody, or nobody?"""

from collections.abc import Sequence

from wardround.report.clinical.leader import leader_first, part_of, repeat_words
from wardround.report.html.charts import Chart, Spec, layout
from wardround.report.html.document import chart_figures
from wardround.report.html.markup import Html, bullets, chart_label, details, join, paragraph, safe, table
from wardround.report.html.palette import INK, QUIET, colour, with_opacity
from wardround.report.run.summary import interval_name
from wardround.runs.clinical.figures import DecisionCurve
from wardround.runs.result import MethodResult
from wardround.runs.run import Run

TABLED = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Thresholds that have a row in the table, where there are more than so many:"""
MOST_TABLED = 20
Curves = Sequence[tuple[MethodResult, DecisionCurve]]


def decision_section(run: Run) -> Html:
    """Where it pays to use the model, a chart of all models, and a table of some thresholds."""
    curves = curves_shown(run)
    if not curves:
        return Html("")
    return join(
        [
            explanation(),
            bullets(useful_words(method, curve) for method, curve in curves),
            paragraph(safe(repeat_words(run))) if run.repeats > 1 else Html(""),
            chart_figures("decision", [decision_chart(run, curves)]),
            details("Net benefit at some thresholds", *(curve_table(run, *one) for one in curves)),
        ]
    )


def curves_shown(run: Run) -> Curves:
    shown = leader_first(run, tuple(method for method in run.methods if has_curve(method)))
    return [(method, curve) for method in shown if (curve := part_of(method, lambda one: one.decision_curve))]


def all_curves(run: Run) -> Chart | None:
    """Every model's curve in one chart."""
    curves = curves_shown(run)
    return decision_chart(run, curves) if curves else None


def has_curve(method: MethodResult) -> bool:
    curve = part_of(method, lambda one: one.decision_curve)
    return curve is not None and len(curve.thresholds) == len(curve.net_benefit) == len(curve.treat_all) > 0


def explanation() -> Html:
    return paragraph(
        safe(
            "Whoever acts (treats, tests, watches) at a risk of 10 % or more accepts nine false alarms for one patient "
            "found. Net benefit weighs both by that exchange: 0.05 is as good as finding 5 of 100 patients without a "
            "single false alarm. A model is worth using at thresholds where its curve lies above “treat all” and "
            "“treat none”."
        )
    )


def useful_words(method: MethodResult, curve: DecisionCurve) -> Html:
    """The widest run of thresholds at which the gain is above 0, for certain where there are intervals."""
    lows = curve.gain_low if len(curve.gain_low) == len(curve.thresholds) else ()
    gains = lows or curve.gain
    found = widest_run([(gain or 0.0) > 1e-12 for gain in gains])
    name = safe(method.label)
    if found is None:
        return Html(f"<strong>{name}</strong>: at no threshold is it shown to be better than treating all or none.")
    first, last = (curve.thresholds[at] or 0.0 for at in found)
    sure = "shown to be better" if lows else "better"
    ends = [f"{100 * one:.0f} %" for one in (first, last)]
    where = f"at a threshold of {ends[0]}" if first == last else f"at thresholds from {ends[0]} to {ends[1]}"
    return Html(f"<strong>{name}</strong>: {sure} than treating all and than treating none {where}.")


def widest_run(flags: Sequence[bool]) -> tuple[int, int] | None:
    """First and last place of the longest run of True."""
    best: tuple[int, int] | None = None
    start = None
    for at, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = at
        if not flag and start is not None:
            if best is None or at - start > best[1] - best[0] + 1:
                best = (start, at - 1)
            start = None
    return best


def decision_chart(run: Run, curves: Curves) -> Chart:
    """Net benefit over thresholds up to where no model has any; a band for the first model only."""
    leader, first = curves[0]
    thresholds = [100 * (threshold or 0.0) for threshold in first.thresholds]
    last = max((at for _, c in curves for at, one in enumerate(c.net_benefit) if (one or 0.0) > 0), default=0)
    right = thresholds[min(len(thresholds) - 1, max(last + 5, 19))]
    top = max(
        [
            0.01,
            *(one or 0.0 for _, c in curves for one in (*c.net_benefit, *c.high)),
            *(t or 0.0 for t in first.treat_all),
        ]
    )
    traces: list[Spec] = []
    if len(first.low) == len(first.high) == len(thresholds):
        known = [
            (x, low, high) for x, low, high in zip(thresholds, first.low, first.high, strict=True) if low is not None
        ]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [x for x, _, _ in known] + [x for x, _, _ in reversed(known)],
                "y": [low for _, low, _ in known] + [high for _, _, high in reversed(known)],
                "fill": "toself",
                "fillcolor": with_opacity(colour(run.methods.index(leader)), 0.15),
                "line": {"width": 0},
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    for method, curve in curves:
        index = run.methods.index(method)
        width = 2.6 if method is leader else 1.4
        traces.append(line(method.label, thresholds, curve.net_benefit, {"color": colour(index), "width": width}))
    traces.append(line("Treat all", thresholds, first.treat_all, {"color": QUIET, "width": 1.4, "dash": "dash"}))
    traces.append(line("Treat none", thresholds, [0.0] * len(thresholds), {"color": INK, "width": 1.4}))
    return Chart(
        title=f"Net benefit (band: {interval_name(run)} of {leader.label})" if first.low else "Net benefit",
        description=f"Decision curves of {len(curves)} models, with treating all and treating none. The table below "
        "has the numbers at some thresholds.",
        traces=traces,
        layout=layout(
            420,
            x={"title": {"text": "risk from which one would act (threshold)"}, "range": [0, right], "ticksuffix": " %"},
            y={"title": {"text": "net benefit"}, "range": [-0.15 * top, 1.08 * top]},
        ),
        height=420,
    )


def line(name: str, x: Sequence[float], y: Sequence[float | None], style: Spec) -> Spec:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": chart_label(name),
        "x": list(x),
        "y": list(y),
        "line": style,
        "hoverinfo": "x+y+name",
    }


def curve_table(run: Run, method: MethodResult, curve: DecisionCurve) -> Html:
    few = len(curve.thresholds) <= MOST_TABLED
    places = [
        at
        for at, one in enumerate(curve.thresholds)
        if few or any(abs((one or 0) - wanted) < 1e-9 for wanted in TABLED)
    ]

    def signed(value: float | None) -> str:
        return "none" if value is None else f"{value:.4f}".replace("-", "−")

    def ends(at: int) -> str:
        if at < len(curve.low) and at < len(curve.high) and curve.low[at] is not None:
            return f"{signed(curve.low[at])} to {signed(curve.high[at])}"
        return "none"

    rows = [
        [
            f"{100 * (curve.thresholds[at] or 0.0):.0f} %",
            signed(curve.net_benefit[at]),
            ends(at),
            signed(curve.treat_all[at]),
            "0",
        ]
        for at in places
    ]
    columns = ["Threshold", "Net benefit", interval_name(run).capitalize(), "Treat all", "Treat none"]
    return table(method.label, columns, rows)
