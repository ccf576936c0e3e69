"""The charts of many settings: every method's score in each, and how training went for each asking hospital."""

from collections.abc import Mapping, Sequence

from wardround.report.html.charts import Chart, Spec, layout, overlay, rows_axis, span
from wardround.report.html.markup import chart_label, plain
from wardround.report.html.palette import colour
from wardround.report.metric_names import direction, label_of
from wardround.report.run.progress_charts import whole_ticks
from wardround.report.run.score_charts import bounds, dots, neutral_value, vertical_line
from wardround.runs.cases_result import CaseResult
from wardround.runs.fields import Json, mapping, number
from wardround.runs.scores import MetricValue

EROSION = "weight_erosion"
PANELS = 4
"""Asking hospitals shown side by side; of more, the first so many."""
LEGEND = 8


def score_chart(labels: Mapping[str, str], case: CaseResult) -> Chart | None:
    """The main measure of one case: a row a method, with its interval."""
    names = [name for name in labels if name in case.methods]
    measures = [case.methods[name] for name in names]
    seen = [value for m in measures for value in (m.value, m.low, m.high) if value is not None]
    if not seen:
        return None
    low, high = bounds(case.metric)
    reach = span(seen, floor=low, ceiling=high)
    chance = neutral_value(case.metric)
    traces = [dot(labels[name], index, m) for index, (name, m) in enumerate(zip(names, measures, strict=True))]
    height = 70 + 19 * len(names)
    title = ", ".join(part for part in (label_of(case.metric), direction(case.metric)) if part)
    return Chart(
        title=case.title,
        description=f"{plain(case.title)}: {label_of(case.metric)} of {len(names)} methods with intervals. The table "
        "above has the same numbers.",
        traces=traces,
        layout=layout(
            height,
            x={"title": {"text": chart_label(title, 60)}, "range": reach},
            y=rows_axis([labels[name] for name in names]) | {"tickfont": {"size": 12}},
            shapes=[vertical_line(chance)] if chance is not None and reach[0] <= chance else [],
            showlegend=False,
            margin={"l": 10, "r": 10, "t": 6, "b": 44},
        ),
        height=height,
    )


def dot(label: str, index: int, measure: MetricValue) -> Spec:
    return dots(label, index, [measure], [float(index)], [label])


def course_chart(labels: Mapping[str, str], against: str, title: str, records: Sequence[Json]) -> Chart | None:
    """Loss by round for training alone, the reference and Weight Erosion; beneath, the weights of the hospitals."""
    first = [record for record in records if record.get("repeat") == 0 and (number(record.get("round")) or 0) > 0]
    shown = [name for name in dict.fromkeys(("local", against, EROSION)) if name in labels]
    users = asking_sites(first, shown)[:PANELS]
    if not users:
        return None
    rounds = [number(record.get("round")) or 0.0 for record in first]
    hospitals = list(dict.fromkeys(name for user in users for name in weights(first, user)))
    traces: list[Spec] = []
    for panel, user in enumerate(users):
        traces += loss_lines(labels, shown, first, user, panel)
        traces += weight_lines(hospitals, weights(first, user), user, panel)
    losses = [value for trace in traces if "-loss" in trace["legendgroup"] for value in trace["y"]]
    if not losses:
        return None
    weighted = bool(hospitals)
    height = 470 if weighted else 300
    return Chart(
        title=title,
        description=f"{plain(title)}: validation loss by round for {len(users)} asking hospitals"
        + (", and below the weight of each hospital by round." if weighted else "."),
        traces=traces,
        layout=panels(height, users, span(rounds), span(losses), max(rounds), weighted),
        height=height,
    )


def asking_sites(records: Sequence[Json], shown: Sequence[str]) -> list[str]:
    """Those for whom something was trained in turn; where nothing was, every hospital whose loss is told."""
    own = [record for record in records if record.get("method") in shown]
    turns = dict.fromkeys(str(record["user"]) for record in own if record.get("user") is not None)
    return list(turns or dict.fromkeys(name for record in own for name in site_losses(record)))


def site_losses(record: Json) -> Json:
    return mapping(mapping(mapping(record.get("measures")).get("validation_loss")).get("sites"))


def records_of(records: Sequence[Json], method: str, user: str) -> list[Json]:
    """The rounds of a method as this hospital sees them: trained for it, or for all."""
    return [one for one in records if one.get("method") == method and one.get("user") in (None, user)]


def weights(records: Sequence[Json], user: str) -> dict[str, list[tuple[float, float]]]:
    """For every hospital its weight by round in the asking one's model."""
    found: dict[str, list[tuple[float, float]]] = {}
    for record in records_of(records, EROSION, user):
        told = mapping(mapping(mapping(record.get("measures")).get("told")).get("alpha"))
        for name, value in told.items():
            weight, at = number(value), number(record.get("round"))
            if weight is not None and at is not None:
                found.setdefault(str(name), []).append((at, weight))
    return found


def loss_lines(
    labels: Mapping[str, str], shown: Sequence[str], records: Sequence[Json], user: str, panel: int
) -> list[Spec]:
    lines = []
    for name in shown:
        points = [
            (at, loss)
            for record in records_of(records, name, user)
            if (loss := number(site_losses(record).get(user))) is not None
            and (at := number(record.get("round"))) is not None
        ]
        if points:
            shade = colour(list(labels).index(name))
            lines.append(line(labels[name], points, f"{name}-loss", panel, 0, {"color": shade, "width": 2.4}))
    return lines


def weight_lines(
    hospitals: Sequence[str], known: Mapping[str, Sequence[tuple[float, float]]], user: str, panel: int
) -> list[Spec]:
    return [
        line(
            f"weight of {plain(name)}",
            known[name],
            f"{place}-weight",
            panel,
            1,
            {"color": colour(place + 3), "width": 4 if name == user else 2, "dash": "dot"},
        )
        for place, name in enumerate(hospitals[:LEGEND])
        if name in known
    ]


def line(name: str, points: Sequence[tuple[float, float]], group: str, panel: int, row: int, look: Spec) -> Spec:
    axis = "" if (place := 2 * panel + row + 1) == 1 else str(place)
    return {
        "type": "scatter",
        "mode": "lines" if len(points) > 1 else "markers",
        "name": chart_label(name, 40),
        "legendgroup": group,
        "showlegend": panel == 0,
        "x": [at for at, _ in points],
        "y": [value for _, value in points],
        "xaxis": f"x{axis}",
        "yaxis": f"y{axis}",
        "line": look,
        "hoverinfo": "x+y+name",
    }


def panels(
    height: int, users: Sequence[str], rounds: list[float], losses: list[float], last: float, weighted: bool
) -> Spec:
    """Axes side by side: above the losses on one scale, below the weights from 0 to 1, if there are any."""
    frame = layout(height, margin={"l": 10, "r": 10, "t": 70, "b": 44})
    across, gap = frame.pop("xaxis"), 0.05
    up = frame.pop("yaxis")
    width = (1 - gap * (len(users) - 1)) / len(users)
    rows = [([0.45, 0.93], losses, "validation loss"), ([0.0, 0.33], [-0.03, 1.05], "weight")]
    if not weighted:
        rows = [([0.0, 0.9], losses, "validation loss")]
    frame["annotations"] = []
    for panel, user in enumerate(users):
        left = panel * (width + gap)
        frame["annotations"].append(
            {"text": chart_label(f"asking: {plain(user)}", 30), "x": left, "xanchor": "left", "xref": "paper"}
            | {"y": 1.0, "yanchor": "top", "yref": "paper", "showarrow": False}
        )
        for row, (reach, values, words) in enumerate(rows):
            axis = "" if (place := 2 * panel + row + 1) == 1 else str(place)
            below = {
                "domain": [left, left + width],
                "anchor": f"y{axis}",
                "range": rounds,
                "title": {"text": "round" if row == len(rows) - 1 else ""},
                **whole_ticks(round(rounds[0]), round(last)),
            }
            beside = {
                "domain": reach,
                "anchor": f"x{axis}",
                "range": values,
                "showticklabels": panel == 0,
                "title": {"text": words if panel == 0 else ""},
            }
            frame[f"xaxis{axis}"], frame[f"yaxis{axis}"] = overlay(across, below), overlay(up, beside)
    frame["legend"] = {**frame["legend"], "y": 1.02}
    return frame
