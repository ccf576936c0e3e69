"""The charts about partners: what is gained, who suits how well, who resembles whom, and whose part is how large."""

from collections.abc import Sequence

from wardround.report import numbers
from wardround.report.html.charts import Chart, Spec, layout, rows_axis, span
from wardround.report.html.markup import chart_label, plain
from wardround.report.html.palette import COLOURS, INK, LINE, QUIET
from wardround.report.metric_names import is_lower_better, label_of
from wardround.report.partners.answer import Partnership, PlaceOnMap, Rating, RatingMethod, SimilarityView
from wardround.report.partners.text import CROWDED
from wardround.report.run.score_charts import lower_error, upper_error, vertical_line

BARS = 40
"""Hospitals up to which each has a bar."""
NUMBERED = 12
"""Hospitals up to which the cells of a matrix hold their numbers."""
DRAWN = 100
"""Hospitals up to which a matrix is drawn: more cells nobody can tell apart, and the page would grow by megabytes."""
TAKEN, LEFT, ASKS = COLOURS[0], "#9FB3C8", COLOURS[1]
BAR = "#4A9BD1"
"""Chosen hospitals where a dark line must be seen on the bar."""
PALE = ((0.0, "#F7FBFD"), (0.5, "#8FBBD9"), (1.0, "#0B4F7D"))
STRETCH = 2.0
"""Standard errors that the thin lines reach each way."""


def gain(asked: Partnership) -> Chart | None:
    """The improvement with its interval beside a line at zero."""
    own = asked.gain.improvement
    if own.value is None:
        return None
    known = is_lower_better(asked.gain.metric) is not None
    ends = [x for x in (own.value, own.low, own.high, 0.0) if x is not None]
    half = 1.25 * max(abs(x) for x in ends) or 1.0
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [own.value],
        "y": [0],
        "marker": {"color": TAKEN, "size": 16, "symbol": "diamond"},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [upper_error(own)],
            "arrayminus": [lower_error(own)],
            "color": TAKEN,
            "thickness": 4,
            "width": 9,
        },
        "hoverinfo": "text",
        "hovertext": [f"{numbers.with_sign(own.value)} ({numbers.interval(own) or 'no interval'})"],
    }
    label = label_of(asked.gain.metric) or "the measure"
    sides = [side_label(0.0, "left", "◀ better alone"), side_label(1.0, "right", "better together ▶")] if known else []
    words = f"{'improvement' if known else 'difference'} in {label}"
    span_words = f", interval {numbers.interval(own)}" if numbers.interval(own) else ""
    return Chart(
        title=f"What training with the chosen partners changes for {plain(asked.asking) if asked.asking else 'you'}",
        description=f"The {words} is {numbers.with_sign(own.value)}{span_words}; above zero means better together.",
        traces=[trace],
        layout=layout(
            170,
            x={"title": {"text": chart_label(words, 60)}, "range": [-half, half]},
            y={"range": [-1, 1], "visible": False},
            shapes=[vertical_line(0.0) | {"line": {"color": INK, "width": 1.6}}],
            annotations=sides,
            showlegend=False,
            margin={"l": 10, "r": 10, "t": 30, "b": 48},
        ),
        height=170,
    )


def side_label(x: float, anchor: str, text: str) -> Spec:
    spot = {"x": x, "xref": "paper", "xanchor": anchor, "y": 1, "yref": "paper", "yanchor": "bottom"}
    return spot | {"text": text, "showarrow": False, "font": {"size": 13, "color": QUIET}}


def scores(asked: Partnership, judged: RatingMethod, *, half: bool = False) -> Chart | None:
    """A bar a hospital, from the cut: to the right what speaks for it, to the left what speaks against it."""
    ranked = sorted(judged.scores.items(), key=lambda entry: -entry[1].value)
    ranked = [(site, score) for site, score in ranked if site != asked.asking]
    if not ranked:
        return None
    shown, cut = ranked[:BARS], judged.cut or 0.0
    names = [f"✓ {plain(site)}" if site in asked.partners else site for site, _ in shown]
    reach = [end for _, score in shown for end in error_ends(score)] + [cut]
    top = 20 if half else 26
    height = 74 + (26 if half else 32) * len(shown)
    trace = {
        "type": "bar",
        "orientation": "h",
        "base": cut,
        "x": [score.value - cut for _, score in shown],
        "y": list(range(len(shown))),
        "width": 0.6,
        "marker": {"color": [BAR if site in asked.partners else LEFT for site, _ in shown]},
        "error_x": {
            "type": "data",
            "array": [STRETCH * (score.error or 0.0) for _, score in shown],
            "color": INK,
            "thickness": 2,
            # No caps: where the error is unknown they would stand alone and claim certainty.
            "width": 0,
        },
        "hoverinfo": "text",
        "hovertext": [f"<b>{chart_label(site, 60)}</b><br>{with_error(score)}" for site, score in shown],
        "hoverlabel": {"namelength": -1},
    }
    more = f" (the best {BARS} of {len(ranked):,})" if len(ranked) > BARS else ""
    line = vertical_line(cut) | {"layer": "above", "line": {"color": INK, "width": 1.6, "dash": "dash"}}
    mark = {"x": cut, "y": 1, "yref": "paper", "yanchor": "bottom", "text": "cut", "showarrow": False}
    return Chart(
        title=f"{plain(judged.label)}{more}",
        description="; ".join(f"{plain(site)} {with_error(score)}" for site, score in shown[:12])
        + f". Bars right of the cut at {numbers.score(cut)} speak for a partner; ticks mark the chosen.",
        traces=[trace],
        layout=layout(
            height,
            x={"title": {"text": "score, higher is better"}, "range": span(reach)},
            y=rows_axis(names),
            shapes=[] if judged.cut is None else [line],
            annotations=[] if judged.cut is None else [mark | {"font": {"size": 12, "color": QUIET}}],
            showlegend=False,
            margin={"l": 10, "r": 16, "t": top, "b": 48},
        ),
        height=height,
        half=half,
    )


def error_ends(score: Rating) -> tuple[float, float]:
    reach = STRETCH * (score.error or 0.0)
    return score.value - reach, score.value + reach


def with_error(score: Rating) -> str:
    """0.042 ± 0.017, or the value alone."""
    value = numbers.score(score.value)
    return value if score.error is None else f"{value} ± {numbers.score(score.error)}"


def matrix(asked: Partnership, own: SimilarityView) -> Chart | None:
    """Who resembles whom, the asking hospital in bold."""
    if not 2 <= len(own.sites) <= DRAWN:
        return None
    size = len(own.sites)
    long = 20 if size <= NUMBERED else 14
    names = [bold_if(site == asked.asking, chart_label(site, long)) for site in own.sites]
    cells = [["" if x is None else numbers.score(x) for x in row] for row in own.values]
    angle = 0 if size <= 4 else -40 if size <= NUMBERED else -90
    step = 44 if size <= NUMBERED else max(14, 26 - size // 8)
    height = 150 + step * size
    trace: Spec = {
        "type": "heatmap",
        "z": [list(row) for row in own.values],
        "x": list(range(size)),
        "y": list(range(size)),
        "colorscale": [list(stop) for stop in PALE],
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"thickness": 12, "outlinewidth": 0, "tickfont": {"color": QUIET}},
        "hoverinfo": "text",
        "hovertext": [
            [cell_words(own, i, j, text) for j, text in enumerate(row)] for i, row in enumerate(cells)
        ],
    }  # fmt: skip
    if size <= NUMBERED:
        trace |= {"text": cells, "texttemplate": "%{text}", "textfont": {"size": 12}}
    columns = {"tickvals": list(range(size)), "ticktext": names, "side": "top", "showgrid": False, "ticks": ""}
    return Chart(
        title=plain(own.label),
        description=f"A table of colours for {size} by {size} hospitals; the folded table below has the numbers.",
        traces=[trace],
        layout=layout(
            height,
            x=columns | {"tickangle": angle, "title": {"text": axis_words(own.columns)}},
            y=rows_axis(own.sites) | {"ticktext": names, "title": {"text": axis_words(own.rows)}},
            plot_bgcolor="#F0F2F4",
            margin={"l": 10, "r": 10, "t": 20, "b": 14},
        ),
        height=height,
    )


def axis_words(text: str) -> str:
    return chart_label(text, 60) if text else ""


def bold_if(condition: bool, text: str) -> str:
    return f"<b>{text}</b>" if condition else text


def cell_words(own: SimilarityView, i: int, j: int, text: str) -> str:
    row = f"{plain(own.rows)} {plain(own.sites[i])}" if own.rows else own.sites[i]
    column = f"{plain(own.columns)} {plain(own.sites[j])}" if own.columns else own.sites[j]
    return f"{chart_label(row, 60)}<br>{chart_label(column, 60)}<br>{text or 'not measured'}"


def places(asked: Partnership) -> Chart | None:
    """Hospitals that lie close are alike; the directions mean nothing, so the axes have no numbers."""
    if len(asked.places) < 2:
        return None
    kinds = (
        ("asks", "star", ASKS, 17, [p for p in asked.places if p.name == asked.asking]),
        ("chosen", "circle", TAKEN, 13, [p for p in asked.places if p.name in asked.partners]),
        (
            "not chosen",
            "square",
            LEFT,
            11,
            [p for p in asked.places if p.name != asked.asking and p.name not in asked.partners],
        ),
    )
    crowded = len(asked.places) > CROWDED
    traces = [
        marks(
            name, symbol, shade, size, own, named=name == "asks" or not crowded or (name == "chosen" and len(own) <= 8)
        )
        for name, symbol, shade, size, own in kinds
        if own
    ]
    across = span([p.x for p in asked.places])
    upward = span([p.y for p in asked.places])
    # Labels stand beside the marks and need room at both ends.
    air = 0.18 * ((across[1] - across[0]) or 1.0)
    plainly: Spec = {"showgrid": False, "showticklabels": False, "showline": False, "title": {"text": ""}}
    return Chart(
        title="Map of the hospitals: the closer, the more alike",
        description=f"A map of {len(asked.places)} hospitals, on which those that lie close are alike. "
        + (f"{plain(asked.asking)} is marked by a star." if asked.asking else ""),
        traces=traces,
        layout=layout(
            420,
            x=plainly | {"range": [across[0] - air, across[1] + air]},
            y=plainly | {"range": [upward[0] - 0.5 * air, upward[1] + 0.5 * air], "scaleanchor": "x"},
            margin={"l": 10, "r": 10, "t": 40, "b": 10},
            shapes=[
                {"type": "rect", "xref": "paper", "yref": "paper", "x0": 0, "x1": 1, "y0": 0, "y1": 1, "layer": "below"}
                | {"line": {"color": LINE, "width": 1}}
            ],
        ),
        height=420,
    )


def marks(name: str, symbol: str, shade: str, size: int, own: Sequence[PlaceOnMap], *, named: bool) -> Spec:
    return {
        "type": "scatter",
        "mode": "markers+text" if named else "markers",
        "name": name,
        "x": [place.x for place in own],
        "y": [place.y for place in own],
        "marker": {"symbol": symbol, "size": size, "color": shade, "line": {"color": "#ffffff", "width": 1}},
        "text": [chart_label(place.name, 22) for place in own],
        "textposition": ["top center" if index % 2 == 0 else "bottom center" for index in range(len(own))],
        "textfont": {"color": INK, "size": 13},
        "cliponaxis": False,
        "hoverinfo": "text",
        "hovertext": [f"<b>{chart_label(place.name, 60)}</b><br>{name}" for place in own],
    }


def dilution(asked: Partnership) -> Chart | None:
    """Bars of shares, and a mark where the hospital drew its line."""
    own = [share for share in asked.dilution if share.row_share is not None][:BARS]
    if not own:
        return None
    rows = list(range(len(own)))
    weighted = any(share.weight_share is not None for share in own)
    traces: list[Spec] = [
        shares("share of the patients", TAKEN, [share.row_share for share in own], [r - 0.18 * weighted for r in rows])
    ]
    if weighted:
        values = [share.weight_share for share in own]
        traces.append(shares("share of the weight", "#7FB3D5", values, [r + 0.18 for r in rows]))
    limited = [(share.limit, row) for share, row in zip(own, rows, strict=True) if share.limit is not None]
    limited = [(limit, row) for limit, row in limited if limit < 1]
    if limited:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "its own limit",
                "x": [limit for limit, _ in limited],
                "y": [row for _, row in limited],
                "marker": {"symbol": "line-ns", "size": 26, "line": {"color": COLOURS[1], "width": 3}},
                "hoverinfo": "x+name",
            }
        )
    largest = max(x for share in own for x in (share.row_share, share.weight_share, 0.01) if x is not None)
    widest = max([largest, *(limit for limit, _ in limited)])
    height = 110 + (44 if weighted else 34) * len(own)
    return Chart(
        title="How large each hospital's share would be",
        description=f"Shares of {len(own)} hospitals against their own limits; the table below has the numbers.",
        traces=traces,
        layout=layout(
            height,
            x={"title": {"text": "share of the whole"}, "range": [0, min(1.02, 1.15 * widest)], "tickformat": ".0%"},
            y=rows_axis([share.site for share in own]),
        ),
        height=height,
    )


def shares(name: str, shade: str, values: Sequence[float | None], rows: Sequence[float]) -> Spec:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": [value or 0 for value in values],
        "y": list(rows),
        "width": 0.34,
        "marker": {"color": shade},
        "hoverinfo": "x+name",
    }
