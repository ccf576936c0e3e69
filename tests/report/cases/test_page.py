"""The page over many settings: claims only what was shown, every number as in the file, nothing unescaped."""

import io
import json
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from rich.console import Console

from tests.support import example_run as run
from tests.support.results import parsed
from wardround.report.cases.page import cases_page, cases_table, summary, view_of, write_cases_report

LABELS = {"global": "Common model", "local": "Own patients only", "fine_tune": "Personal model"}


def case(name: str, values: dict[str, float], verdicts: dict[str, str], metric: str = "roc_auc") -> dict[str, Any]:
    methods = {
        method: {"value": value, "low": value - 0.05, "high": value + 0.05, "rate": 0.1, "scope": 2.0}
        | {"against": {"global": {"difference": 0.0, "verdict": verdicts[method]}} if method in verdicts else {}}
        for method, value in values.items()
    }
    entry = {"loss": 0.5, "round": 4.0, "spends": True}
    scope = {"local": 1, "global": 4, "fine_tune": 2}
    budgets = {
        "steps": {"budget": {"a": 2}, "methods": dict.fromkeys(values, entry)},
        "traffic": {
            "budget": {"a": 2},
            "methods": {**dict.fromkeys(values, entry), "local": {"loss": 0.625, "spends": False}},
        },
        "scope": {
            "sites": 4,
            "methods": {m: {"scope": scope[m] + 0.125, "group": scope[m], "loss": 0.375} for m in values},
        },
    }
    sites = [{"name": site, "train": 6, "validation": 2, "test": 2} for site in "abcd"]
    return {"name": name, "title": f"Setting {name}", "folder": f"cases/{name}", "metric": metric, "repeats": 3} | {
        "sites": sites,
        "methods": methods,
        "budgets": budgets,
    }


NONE = "no difference shown"
CASES = [
    # The personal model leads, and it is shown.
    case("one", {"global": 0.8, "local": 0.7, "fine_tune": 0.9}, {"local": NONE, "fine_tune": "better"}),
    # It leads by as much, and it may be chance.
    case("two", {"global": 0.8, "local": 0.7, "fine_tune": 0.9}, {"local": "worse", "fine_tune": NONE}),
    # The common model leads, and is shown to be better than all.
    case("three", {"global": 0.9, "local": 0.7, "fine_tune": 0.8}, {"local": "worse", "fine_tune": "worse"}),
    # It leads, but is not shown to be better than all.
    case("four", {"global": 0.9, "local": 0.7, "fine_tune": 0.8}, {"local": "worse", "fine_tune": NONE}),
    # An error, where less is better.
    case("five", {"global": 3.0, "local": 4.0, "fine_tune": 2.0}, {"local": NONE, "fine_tune": "better"}, "rmse"),
]


def result(cases: list[dict[str, Any]], labels: dict[str, str] = LABELS) -> dict[str, Any]:
    methods = [{"name": name, "label": label} for name, label in labels.items()]
    return {"study": "study", "kind": "cases", "against": "global", "users": "each", "methods": methods} | {
        "cases": cases,
        "notes": ["A note."],
    }


def written(folder: Path, cases: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result(cases)), encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps({"finished": "2026-11-16T08:00:12Z", "wardround": "1"}))
    return folder


def test_best_only_where_more_than_chance_speaks_for_it() -> None:
    told = view_of(parsed(result(CASES)))
    assert [told.best(one) for one in told.cases] == ["fine_tune", None, "global", None, "fine_tune"]
    # With a measure whose better side nobody knows, nothing is best.
    strange = view_of(parsed(result([{**CASES[0], "metric": "strange"}])))
    assert strange.best(strange.cases[0]) is None


def test_the_answer_claims_what_was_shown_and_no_more() -> None:
    words = summary(view_of(parsed(result(CASES))))
    assert "In 2 of the 5 settings at least one other model trained together was better" in words
    assert "(Setting one, Setting five)" in words
    assert "Own patients only: worse in 3." in words
    assert "Personal model: better in 2 and worse in 1." in words
    nothing = summary(view_of(parsed(result([case("x", {"global": 0.8, "local": 0.9, "fine_tune": 0.9}, {})]))))
    assert "In none of the 1 settings" in nothing
    assert "No difference is shown in any setting for: Own patients only, Personal model." in nothing
    assert "No setting is finished yet" in summary(view_of(parsed(result([]))))


def test_every_number_of_the_tables_is_the_results(tmp_path: Path) -> None:
    page = run.Page(write_cases_report(written(tmp_path, CASES)))
    scores, steps, traffic, scope = page.tables
    assert scores[0] == ["Setting", *LABELS.values()]
    assert [row[0].split(" ROC")[0].split(" RMSE")[0] for row in scores[1:]] == [f"Setting {c['name']}" for c in CASES]
    assert scores[1][3] == "0.900 ▲ (better) 0.850 to 0.950 rate 0.1"
    assert scores[3][2] == "0.700 ▼ (worse) 0.650 to 0.750 rate 0.1"
    assert scores[2][3] == "0.900 0.850 to 0.950 rate 0.1"
    assert steps[1][1:] == ["0.500 round 4"] * 3
    assert traffic[1][1:] == ["0.500 round 4", "0.625 spends nothing", "0.500 round 4"]
    assert scope[1][1:] == ["Own patients only: 0.375", "Personal model: 0.375 (2.1 hospitals)", "Common model: 0.375"]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count("<strong>0.900</strong>") == 2, "settings one and three"
    assert text.count("<strong>2.000</strong>") == 1
    for chart in page.data:
        go.Figure(chart)  # refuses what Plotly would not understand
    assert len(page.data) == len(CASES)
    assert '<a href="cases/one/report.html">' in text


def rounds(folder: Path) -> None:
    """Two asking sites, two rounds; the weights of site b in a's model fall to a half."""
    place = folder / "cases" / "one"
    place.mkdir(parents=True)
    lines = []
    for method, users in (("global", [None]), ("local", [None]), ("weight_erosion", ["a", "b"])):
        for user in users:
            for number in (1, 2):
                loss = {"a": 0.5 / number, "b": 0.75 / number}
                told = {"told": {"alpha": {"a": 1.0, "b": 1 / number}}} if user else {}
                measures = {"validation_loss": {"weighted": 0.6, "sites": loss}, **told}
                asking = {"user": user} if user else {}
                lines.append(
                    json.dumps({"method": method, "repeat": 0, "round": number, "measures": measures} | asking)
                )
    (place / "rounds.jsonl").write_text("\n".join(lines) + "\n")


def test_courses_and_weights_are_drawn_for_each_asking_hospital(tmp_path: Path) -> None:
    folder = written(tmp_path, [CASES[0]])
    told = json.loads((folder / "result.json").read_text())
    told["methods"].append({"name": "weight_erosion", "label": "Weight Erosion"})
    (folder / "result.json").write_text(json.dumps(told))
    rounds(folder)
    chart = run.Page(write_cases_report(folder)).data[-1]
    go.Figure(chart)
    lines = {(trace["name"], trace["xaxis"]): trace["y"] for trace in chart["data"]}
    assert lines["Common model", "x"] == [0.5, 0.25], "site a asks"
    assert lines["Weight Erosion", "x3"] == [0.75, 0.375], "site b asks"
    assert lines["weight of b", "x2"] == [1.0, 0.5]
    assert {"asking: a", "asking: b"} == {note["text"] for note in chart["layout"]["annotations"]}


def test_nothing_gets_out_of_a_title(tmp_path: Path) -> None:
    poisoned = [{**CASES[0], "name": bad, "title": bad} for bad in run.NASTY]
    text = cases_page(written(tmp_path, poisoned))
    assert "<script>fired" not in text
    assert "<img" not in text
    assert "<b onmouseover" not in text
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    run.Page(tmp_path / "report.html")  # every element is closed


def test_the_table_for_the_terminal() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(cases_table(parsed(result(CASES))))
    text = console.export_text()
    assert "Setting one (ROC-AUC)" in text
    assert "0.900 ▲" in text
    assert "0.700 ▼" in text
    assert "4.000" in text


def test_many_methods_are_told_short_in_the_terminal() -> None:
    more = {**LABELS, **{f"m{number}": f"Method {number}" for number in range(5)}}
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(cases_table(parsed(result(CASES, more))))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in console.export_text().splitlines()]
    told = {row[0]: row[1:] for row in rows if row}
    assert told["Setting one (ROC-AUC)"] == ["0.800", "0.900 fine_tune", "fine_tune", "none shown"]
    assert told["Setting three (ROC-AUC)"] == ["0.900", "0.900 global", "none shown", "local, fine_tune"]
    assert told["Setting five (RMSE)"] == ["3.000", "2.000 fine_tune", "fine_tune", "none shown"]


@pytest.mark.parametrize("missing", ["methods", "cases", "against", "notes"])
def test_a_result_that_lacks_something_still_makes_a_page(missing: str, tmp_path: Path) -> None:
    folder = written(tmp_path, CASES)
    told = result(CASES)
    del told[missing]
    (folder / "result.json").write_text(json.dumps(told))
    assert "Many settings compared" in cases_page(folder)
