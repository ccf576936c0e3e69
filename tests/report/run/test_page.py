"""The report page: every number as in the files, everything escaped, nothing loaded, honest about what is missing."""

import itertools
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from tests.support import example_run as run
from wardround.core.errors import Refusal
from wardround.report.run.page import write_report

# Tests are no package, so that what they share is loaded by its path.


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Any]:
    files = run.example()
    files["result"]["methods"][0]["scores"]["sites"]["Bo"]["roc_auc"] = {
        "value": None,
        "undefined": "only one class among 12 test patients",
    }
    return files, run.Page(write_report(run.write(tmp_path_factory.mktemp("run"), files)))


def test_every_number_of_the_tables_is_the_results(shown: tuple[dict[str, Any], Any]) -> None:
    files, page = shown
    tables = [table for table in page.tables if table[0][0] == "Hospital" and table[0][1] == run.METHODS[0][1]]
    assert len(tables) == len(run.METRICS)
    for metric, table in zip(run.METRICS, tables, strict=True):
        rows = {row[0]: row[1:] for row in table[1:]}
        assert list(rows)[: len(run.HOSPITALS)] == list(run.HOSPITALS)
        for index, method in enumerate(files["result"]["methods"]):
            for site, own in method["scores"]["sites"].items():
                check_cell(rows[site][index], own[metric])
            check_cell(rows["All hospitals, by patients"][index], method["scores"]["weighted"][metric])
            check_cell(rows["All hospitals, each counting the same"][index], method["scores"]["unweighted"][metric])


def check_cell(cell: str, measured: dict[str, Any]) -> None:
    if measured["value"] is None:
        assert cell == f"not defined: {measured['undefined']}"
        return
    # All numbers of the example lie between 0.001 and 10: three decimals, by Python's own formatting.
    expected = [f"{measured[key]:.3f}" for key in ("value", "low", "high") if key in measured]
    assert re.findall(r"\d+\.\d+", cell) == expected


def test_best_is_bold_and_lower_is_better_for_errors(tmp_path: Path) -> None:
    files = run.example(hospitals=("A",), metrics=("brier",))
    for method, value in zip(files["result"]["methods"], (0.21, 0.19, 0.25), strict=True):
        method["scores"]["sites"]["A"]["brier"] = {"value": value}
    text = write_report(run.write(tmp_path, files)).read_text(encoding="utf-8")
    assert "<strong>0.190</strong>" in text
    assert "<strong>0.210</strong>" not in text
    assert "<strong>0.250</strong>" not in text
    assert "<strong>Common model</strong> scored best at A (0.190)" in text


def test_differences_and_patients_are_the_results(shown: tuple[dict[str, Any], Any]) -> None:
    files, page = shown
    labels = dict(run.METHODS)
    table = next(table for table in page.tables if table[0][-1] == "Verdict")
    for row, entry in zip(table[1:], files["result"]["comparison"], strict=True):
        assert row[2] == f"{labels[entry['method']]} against {labels[entry['against']]}"
        # Three decimals, and two digits where three decimals would leave nothing.
        gap = entry["difference"]
        assert row[3].replace("−", "-") == (f"{gap:+.3f}" if abs(gap) >= 0.001 else f"{gap:+.2g}")
        assert row[4].replace("−", "-") == f"{entry['low']:.3f} to {entry['high']:.3f}"
        assert row[5].endswith(entry["verdict"])
    patients = next(table for table in page.tables if table[0][1] == "Training")
    for row, site in zip(patients[1:], files["result"]["sites"], strict=False):
        numbers = [site["train"], site["validation"], site["test"]]
        assert row[:5] == [site["name"], *map(str, numbers), str(sum(numbers))]
        assert row[5] == f"{100 * site['prevalence']:.0f} %"


def test_all_hospitals_methods_and_the_undefined_are_named(shown: tuple[dict[str, Any], Any]) -> None:
    _, page = shown
    for name in (*run.HOSPITALS, *(label for _, label in run.METHODS)):
        assert name in page.text
    assert "ROC-AUC is not defined at Bo: only one class among 12 test patients." in page.text
    assert "95 % interval" in page.text
    assert "2.5 MB of traffic" in page.text  # 2 x 204,800 x (1 + 2 + 3) = 2,457,600 bytes
    assert "10 s of time" in page.text  # 2.5 + 3.5 + 4.5 = 10.5, halves to even
    assert "66 mWh" in page.text  # 11 + 22 + 33


def test_the_charts_hold_the_scores_and_are_valid_plotly(shown: tuple[dict[str, Any], Any]) -> None:
    files, page = shown
    for chart in page.data:
        go.Figure(chart)  # raises on a property or value that Plotly does not know
    chart = next(chart for chart in page.data if "error_x" in chart["data"][0])
    dots = chart["data"]
    for trace, method in zip(dots, files["result"]["methods"], strict=True):
        own = [method["scores"]["sites"][site]["roc_auc"] for site in run.HOSPITALS]
        own.append(method["scores"]["weighted"]["roc_auc"])
        known = [m for m in own if m["value"] is not None]
        assert trace["x"] == [m["value"] for m in known]
        ends = [x + up for x, up in zip(trace["x"], trace["error_x"]["array"], strict=True)]
        assert ends == pytest.approx([m["high"] for m in known])
    assert "only one class among 12 test patients" in chart["layout"]["annotations"][0]["text"]


def test_nothing_is_loaded_and_scripts_are_allowed_by_hash_only(shown: tuple[dict[str, Any], Any]) -> None:
    _, page = shown
    for tag, attributes in page.tags:
        for key in ("src", "href", "srcset", "action", "data", "poster"):
            assert not re.match(r"\s*(https?:)?//", attributes.get(key) or ""), (tag, attributes)
        assert not any(key.startswith("on") for key in attributes), (tag, attributes)
        assert not (tag == "script" and "src" in attributes)
    policy = next(a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a) or ""
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy.split(";")[1]


def test_headings_tables_and_charts_can_be_read_without_eyes(shown: tuple[dict[str, Any], Any]) -> None:
    _, page = shown
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    charts = [a for t, a in page.tags if t == "div" and a.get("class") == "chart"]
    assert len(charts) == len(page.data) >= 8
    assert all(a["role"] == "img" and len(a["aria-label"] or "") > 30 for a in charts)
    assert sum(tag == "caption" for tag, _ in page.tags) == len(page.tables)
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")


def test_an_interrupted_run_is_called_interrupted(tmp_path: Path) -> None:
    files = run.example(rounds=9)
    del files["result"]
    run.write(tmp_path, files)
    with (tmp_path / "rounds.jsonl").open("a") as lines:
        lines.write('{"method": "fed_avg", "repeat": 0, "rou')
    page = run.Page(write_report(tmp_path))
    assert "This run was interrupted after round 9" in page.text
    assert "One line of rounds.jsonl could not be read" in page.text
    assert "no model can be called best" in page.text
    assert len(page.data) == 3 + 2  # progress of three methods, traffic and time added up from the rounds
    assert "221 kB of traffic" in page.text  # 3 methods x 9 rounds x 8,192 bytes = 221,184


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"study": None, "methods": None, "sites": [], "comparison": "?"},
        {"methods": [{}], "metric": "roc_auc"},
        {"methods": [{"name": "a", "scores": {"sites": {"x": {"roc_auc": 0.5}}}}], "sites": [{"name": "x"}]},
        {"metric": "roc_auc", "sites": [{"name": "x", "test": "many"}], "methods": [{"name": "a"}, {"name": "b"}]},
        {"metric": "rmse", "methods": [{"name": "a", "scores": {"weighted": {"rmse": {"value": float("nan")}}}}]},
    ],
)
def test_short_results_give_a_page(tmp_path: Path, result: dict[str, Any]) -> None:
    page = run.Page(write_report(run.write(tmp_path, {"result": result})))
    assert "In short" in page.text
    assert "nan" not in page.text.lower()


def test_one_method_in_regression_at_one_site(tmp_path: Path) -> None:
    files = run.example(hospitals=("Only",), methods=run.METHODS[1:2], metrics=("rmse",))
    files["result"]["task"] = {"kind": "regression", "target": "days in hospital"}
    files["result"]["methods"][0]["scores"]["sites"]["Only"]["rmse"] = {"value": 1234.56, "low": 987.6, "high": 1500.2}
    files["result"]["sites"][0]["prevalence"] = None
    page = run.Page(write_report(run.write(tmp_path, files)))
    assert "The model reached 1,235 (987.6 to 1,500) at Only" in page.text
    assert "Only one way of training was tried" in page.text
    assert "scored best" not in page.text
    assert "With outcome" not in page.text


def test_a_thousand_hospitals_are_shown_as_a_distribution(tmp_path: Path) -> None:
    files = run.example(hospitals=tuple(f"ward-{i}" for i in range(1000)), rounds=3, metrics=("accuracy",))
    page = run.Page(write_report(run.write(tmp_path, files)))
    kinds = {trace["type"] for chart in page.data for trace in chart["data"]}
    assert {"box", "histogram"} <= kinds
    assert max(len(chart["data"]) for chart in page.data) <= 4
    counted = re.findall(r"scored best at ([\d,]+) of 1,000 hospitals", page.text)
    wins = dict.fromkeys(range(3), 0)
    for site in files["result"]["sites"]:
        values = [m["scores"]["sites"][site["name"]]["accuracy"]["value"] for m in files["result"]["methods"]]
        wins[values.index(max(values))] += 1
    assert counted == [f"{n:,}" for n in wins.values() if n]
    scores = [table for table in page.tables if table[0][1] == run.METHODS[0][1]]
    row = next(row for table in scores for row in table if row[0] == "ward-617")
    value = files["result"]["methods"][0]["scores"]["sites"]["ward-617"]["accuracy"]["value"]
    assert row[1].startswith(f"{value:.3f}")


def test_what_cannot_be_read_is_refused_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no run in this folder"):
        write_report(tmp_path)
    (tmp_path / "result.json").write_text('{"study": ')
    with pytest.raises(Refusal, match=r"result\.json"):
        write_report(tmp_path)


def test_a_report_is_replaced_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    run.write(tmp_path, run.example(rounds=2))
    first = write_report(tmp_path).read_bytes()
    assert write_report(tmp_path).read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["manifest.json", "report.html", "result.json", "rounds.jsonl"]


def test_the_truth_of_made_up_data_is_told_in_words(tmp_path: Path) -> None:
    files = run.example(rounds=2)
    files["result"]["truth"] = {
        "groups": {"urban": ["Freetown", "Bo"]},
        "why": {"urban": "malaria is rare"},
        "best_auc": {"Freetown": 0.8656},
        "coefficients": {"Freetown": {"age": 0.2}},
    }
    page = run.Page(write_report(run.write(tmp_path, files)))
    assert "Freetown and Bo (urban): malaria is rare." in page.text
    assert "The best ROC-AUC that any model could reach, with unlimited patients: 0.866 at Freetown." in page.text
    assert ["coefficients.Freetown.age", "0.200"] in [row for table in page.tables for row in table]


def test_a_lead_that_nothing_shows_is_called_chance(tmp_path: Path) -> None:
    files = run.example(hospitals=("A",), methods=run.METHODS[:2], rounds=2, metrics=("roc_auc",))
    for method, value in zip(files["result"]["methods"], (0.7, 0.8), strict=True):
        method["scores"]["sites"]["A"]["roc_auc"] = method["scores"]["weighted"]["roc_auc"] = {"value": value}
    pair = {"metric": "roc_auc", "method": "fed_avg", "against": "local", "difference": 0.1, "low": -0.1, "high": 0.3}
    both = [pair | {"site": site, "verdict": "no difference shown"} for site in ("A", "all sites")]
    files["result"]["comparison"] = both
    page = run.Page(write_report(run.write(tmp_path / "chance", files)))
    assert "may be due to chance (compared on the same patients, at A and all hospitals together" in page.text
    files["result"]["comparison"] = [both[0] | {"low": 0.05, "verdict": "better"}, both[1]]
    page = run.Page(write_report(run.write(tmp_path / "shown", files)))
    assert "Every lead may be due to chance" not in page.text
    assert "at A, the lead over Own model only is larger than chance would explain" in page.text


def test_sureness_is_told_with_the_rivals_that_were_compared(tmp_path: Path) -> None:
    files = run.example(hospitals=("A", "B"), rounds=2)
    for method, value in zip(files["result"]["methods"], (0.7, 0.8, 0.9), strict=True):
        for site in ("A", "B"):
            method["scores"]["sites"][site]["roc_auc"] = {"value": value}
        method["scores"]["weighted"]["roc_auc"] = {"value": value}
    pair = {"metric": "roc_auc", "method": "weight_erosion", "against": "local", "difference": 0.2}
    files["result"]["comparison"] = [
        pair | {"site": "A", "low": 0.1, "high": 0.3, "verdict": "better"},
        pair | {"site": "B", "low": -0.1, "high": 0.5, "verdict": "no difference shown"},
    ]
    page = run.Page(write_report(run.write(tmp_path, files)))
    assert "at A, the lead over Own model only is larger than chance would explain" in page.text
    assert "at B, the lead over Own model only may be due to chance" in page.text
    assert "Not every lead over Common model and Own model only was tested in this way" in page.text
