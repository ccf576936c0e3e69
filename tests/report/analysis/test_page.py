"""The page of an analysis says what was found and draws every kind of chart; text from files cannot break out."""

import json
import re

import pytest

from wardround.report.analysis.charts import KINDS, chart_of
from wardround.report.analysis.page import analysis_page
from wardround.runs.analyses.analysis_result import AnalysisResult, ResultChart
from wardround.runs.read import parse_result
from wardround.runs.result import values_of

SERIES = {
    "forest": [
        {"name": "A", "value": 1.2, "low": 0.8, "high": 1.9, "weight": 2.0, "null": 1.0, "log": True},
        {"name": "all", "value": 1.1, "low": 0.9, "high": 1.4, "summary": True},
        {"name": "a heading", "heading": True},
    ],
    "funnel": [{"name": "A", "value": 0.2, "error": 0.1}, {"name": "all", "value": 0.25, "summary": True}],
    "steps": [{"name": "A", "x": [0, 1], "y": [1, 0.5], "low": [1, 0.4], "high": [1, 0.6]}],
    "lines": [{"name": "A", "x": [0, 1], "y": [1, None]}],
    "points": [{"name": "A", "x": [0, 1], "y": [1, 2], "text": ["one", "two"]}],
    "bars": [{"name": "A", "x": ["1", "2"], "y": [3, 4]}],
    "heat": [{"x": ["a", "b"], "y": ["a"], "z": [[1.0, -0.5]]}],
}


def result(**more):
    return AnalysisResult(
        study="ages",
        kind="analysis",
        analysis="glm",
        label="Generalised linear model",
        settings={"formula": "y ~ x"},
        deployed=True,
        sums_only=True,
        sites=({"name": "North <b>", "rows": 120},),
        columns={"x": {"kind": "number"}},
        exchanges=4,
        numbers_sent=40,
        words=("The answer is <script>alert(1)</script> 42.", "And more."),
        tables=({"name": "t", "caption": "Table", "columns": ("a", "b"), "rows": (("x", 1.5), ("y", None))},),
        charts=tuple({"name": kind, "caption": kind, "kind": kind, "series": one} for kind, one in SERIES.items()),
        numbers={"a": 1},
        notes=("A note.",),
        **more,
    )


@pytest.mark.parametrize("kind", SERIES)
def test_every_kind_is_drawn(kind):
    chart = chart_of(ResultChart(name="x", caption="A chart", kind=kind, series=tuple(SERIES[kind])))
    assert chart.traces
    json.dumps(chart.layout)
    assert set(SERIES) == set(KINDS)


def test_a_chart_of_an_unknown_kind_is_left_out():
    assert chart_of(ResultChart(name="x", caption="", kind="pie", series=({"x": 1},))) is None


def test_the_page_says_it_and_nothing_breaks_out():
    page = analysis_page(result(), {"finished": "2026-11-17T19:10:00+00:00"})
    assert "over real hospitals" in page
    assert "no single one" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert len(re.findall(r'class="chart"', page)) == len(SERIES)


def test_a_result_comes_back_as_it_was_written():
    before = result()
    found = parse_result(json.loads(json.dumps(values_of(before))))
    assert found.remarks == ()
    assert found.result.words == before.words
    assert found.result.charts == before.charts
