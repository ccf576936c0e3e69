"""The charts of the page of `explain`: what changed decisions became, and how the answer varies with the split."""

from wardround.report.explain.tables import STRATEGIES, standing
from wardround.report.html.charts import Chart, layout, rows_axis
from wardround.report.html.palette import INK, colour
from wardround.runs.explain.explain_result import OperatingCell, SiteAnswer

HALF = {"type": "line", "x0": 50, "x1": 50, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": INK, "dash": "dot"}}


def flips_chart(one: SiteAnswer, cell: OperatingCell) -> Chart | None:
    """The share of changed decisions that became right, with its interval; one half is no gain."""
    shown = [found for found in cell.strategies if found.test.success is not None]
    if not shown:
        return None
    names = [f"{STRATEGIES.get(s.name, s.name)} ({standing(s)})" for s in shown]
    centers = [100 * (s.test.success or 0) for s in shown]
    lows = [100 * ((s.test.success or 0) - (s.test.low or 0)) for s in shown]
    highs = [100 * ((s.test.high or 0) - (s.test.success or 0)) for s in shown]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": centers,
        "y": list(range(len(shown))),
        "error_x": {"type": "data", "symmetric": False, "array": highs, "arrayminus": lows, "color": colour(0)},
        "marker": {"size": 10, "color": [colour(0) if s.confirmed else "#9AA5B1" for s in shown]},
        "hovertemplate": "%{x:.0f} %<extra></extra>",
        "showlegend": False,
    }
    height = 110 + 44 * len(shown)
    spoken = "; ".join(f"{name}: {center:.0f} %" for name, center in zip(names, centers, strict=True))
    return Chart(
        f"{one.site}, {cell.words}: of the decisions that another model changes, how many become right",
        f"Share of changed decisions that became right. {spoken}. Half is no better than the own model.",
        [trace],
        layout(
            height,
            x={"title": {"text": "became right, % (dotted: no better than the own model)"}, "range": [0, 100]},
            y={**rows_axis(names), "ticktext": names},
            shapes=[HALF],
        ),
        height,
    )


def split_chart(one: SiteAnswer) -> Chart | None:
    shown = [split for split in one.splits if split.success is not None]
    if not shown:
        return None
    traces = []
    for at, by in enumerate(dict.fromkeys(split.by for split in one.splits)):
        own = [split for split in shown if split.by == by]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"split by {by}",
                "x": [100 * (split.share or 0) for split in own],
                "y": [100 * (split.success or 0) for split in own],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [100 * ((s.high or 0) - (s.success or 0)) for s in own],
                    "arrayminus": [100 * ((s.success or 0) - (s.low or 0)) for s in own],
                    "color": colour(at),
                    "thickness": 1,
                },
                "marker": {"size": 9, "color": colour(at), "symbol": ["circle", "square"][at % 2]},
            }
        )
    line = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": 50,
        "y1": 50,
        "line": {"color": INK, "dash": "dot"},
    }
    return Chart(
        f"{one.site}: the same question on {len(one.splits)} splits",
        "Share of patients handed over and of changed decisions that became right, one point a split that passed.",
        traces,
        layout(
            320,
            x={"title": {"text": "handed over, % of the patients"}, "rangemode": "tozero"},
            y={"title": {"text": "became right, %"}, "range": [0, 100]},
            shapes=[line],
        ),
        320,
    )
