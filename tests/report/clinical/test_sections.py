"""The clinical sections of a report: every number as in the files, in words a board understands."""

import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from tests.support import example_run as run
from tests.support.example_clinical import add_clinical
from wardround.report.clinical.decision_curve import widest_run
from wardround.report.run.page import write_report

OPERATING = "PPV"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Any]:
    files = add_clinical(run.example())
    return files, run.Page(write_report(run.write(tmp_path_factory.mktemp("clinical"), files)))


def leader(files: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = max(files["result"]["methods"], key=lambda m: m["scores"]["weighted"]["roc_auc"]["value"])
    return found


def test_the_contents_lead_to_every_section(shown: tuple[dict[str, Any], Any]) -> None:
    _, page = shown
    links = [a["href"] for tag, a in page.tags if tag == "a"]
    sections = [f"#{a['id']}" for tag, a in page.tags if tag == "section"]
    assert links == sections[1:], "the first answers stand above"
    for name in ("included", "patients", "operating", "calibration", "decisions", "forest", "importance"):
        assert f"#{name}" in links
    for chart in page.data:
        go.Figure(chart)


def test_the_flow_adds_up(shown: tuple[dict[str, Any], Any]) -> None:
    files, page = shown
    whole = files["result"]["flow"]["all"]
    assert f"{whole['read']:,} rows read" in page.text
    assert f"{whole['without_outcome']} without a known outcome" in page.text
    assert f"{whole['left_out']} left out by the study's settings" in page.text
    assert f"{whole['used']:,} patients used, at 4 hospitals" in page.text
    table = next(table for table in page.tables if table[0][1] == "Rows read")
    for row, (name, flow) in zip(table[1:], files["result"]["flow"]["sites"].items(), strict=True):
        assert row == [name, str(flow["read"]), "4", "3", str(flow["used"])]


def test_the_table_of_patients_hides_what_is_hidden(shown: tuple[dict[str, Any], Any]) -> None:
    files, page = shown
    table = next(table for table in page.tables if table[0][0] == "Column")
    rows = {row[0]: row[1:] for row in table[1:]}
    assert table[0][1:] == ["All hospitals", *run.HOSPITALS]
    assert rows["Patients"][0] == f"{files['result']['patient_table']['patients']:,}"
    assert rows["lactate"][0] == "1.9 1.2 to 3.05"
    assert rows["missing"] == ["2"] * 5
    assert rows["male"] == ["30 (25 %)", *["30"] * 4], "no share where a count is hidden"
    assert rows["female"] == ["90 (75 %)", *["not shown"] * 4]
    assert "Counts below 10 are not shown, nor others" in page.text


def test_patients_flagged_are_counted_in_words(shown: tuple[dict[str, Any], Any]) -> None:
    files, page = shown
    counts = leader(files)["clinical"]["operating_point"]["all"]
    flagged = counts["true_positives"] + counts["false_positives"]
    ill = counts["true_positives"] + counts["false_negatives"]
    of = [round(100 * n / counts["rows"]) for n in (flagged, counts["true_positives"], ill)]
    assert f"Of 100 patients like these, {of[0]} are flagged, {of[1]} of them rightly." in page.text
    assert f"{of[2]} have the outcome (ebola), of whom {of[2] - of[1]} are missed." in page.text
    assert "from a predicted risk of 30.0 % on" in page.text
    assert (
        "among 66 validation patients by the highest threshold that finds 90.0 % of those with the outcome" in page.text
    )
    table = next(table for table in page.tables if OPERATING in table[0] and table[0][0] == "Hospital")
    for row, (name, one) in zip(table[1:], leader(files)["clinical"]["operating_point"]["sites"].items(), strict=True):
        assert row[:3] == [name, "50", str(one["true_positives"] + one["false_negatives"])]
        told = [f"{100 * one['sensitivity'][key]:.1f}" for key in ("value", "low", "high")]
        assert re.findall(r"[\d.]+", row[4]) == told


def test_rare_patients_are_counted_in_thousands(tmp_path: Path) -> None:
    files = add_clinical(run.example(methods=run.METHODS[:1]))
    point = files["result"]["methods"][0]["clinical"]["operating_point"]
    point["all"] |= {"rows": 20_000, "true_positives": 30, "false_positives": 70, "false_negatives": 10}
    page = run.Page(write_report(run.write(tmp_path, files)))
    # 100 of 20,000 are 5 of 1,000; 30 are 1.5, which is 2; 40 with the outcome are 2.
    assert "Of 1,000 patients like these, 5 are flagged, 2 of them rightly. 2 have the outcome (ebola)" in page.text
    assert "A patient is flagged from a predicted risk of 30.0 % on." in page.text


def test_calibration_says_on_which_side_it_errs(tmp_path: Path) -> None:
    files = add_clinical(run.example(methods=run.METHODS[:1]))
    figures = files["result"]["methods"][0]["clinical"]["calibration"]
    figures |= {
        "in_the_large": {"value": 0.5, "low": 0.2, "high": 0.8},
        "slope": {"value": 0.6, "low": 0.4, "high": 0.8},
        "predicted": 0.1,
        "observed": 0.15,
    }
    figures["sites"]["Bo"]["slope"] = {"value": None, "undefined": "only one outcome among 9 patients"}
    files["result"]["methods"][0]["scores"]["reliability"][0] |= {"low": 0.01, "high": 0.2}
    page = run.Page(write_report(run.write(tmp_path, files)))
    assert "On average: risk predicted 10.0 %, share observed 15.0 %." in page.text
    assert "0.500 (0.200 to 0.800; in log-odds; 0 is right): the model predicts too low." in page.text
    assert "0.600 (0.400 to 0.800; 1 is right): the model predicts too extremely." in page.text
    assert "not defined: only one outcome among 9 patients" in page.text
    curve = next(chart for chart in page.data if "predicted share" in str(chart["layout"]["xaxis"]["title"]))["data"][1]
    points = files["result"]["methods"][0]["scores"]["reliability"]
    assert curve["x"] == [point["predicted"] for point in points]
    assert curve["error_y"]["array"][0] == pytest.approx(0.2 - points[0]["observed"])
    assert curve["error_y"]["array"][1] == 0, "no bar where there is no interval"


def test_where_acting_pays_is_where_the_gain_is_shown(tmp_path: Path) -> None:
    files = add_clinical(run.example(methods=run.METHODS[:1]))
    curve = files["result"]["methods"][0]["clinical"]["decision_curve"]
    curve["gain_low"] = [0.01 if 9 <= at <= 29 else -0.01 for at in range(99)]
    page = run.Page(write_report(run.write(tmp_path, files)))
    assert "shown to be better than treating all and than treating none at thresholds from 10 % to 30 %." in page.text
    lines = next(chart for chart in page.data if "threshold" in str(chart["layout"]["xaxis"]["title"]))["data"]
    named = {line.get("name"): line for line in lines}
    assert named["Own model only"]["y"] == curve["net_benefit"]
    assert named["Treat all"]["y"] == curve["treat_all"]
    curve["gain_low"] = [-0.01] * 99
    page = run.Page(write_report(run.write(tmp_path / "never", files)))
    assert "at no threshold is it shown to be better than treating all or none." in page.text
    assert widest_run([True, False, True, True, False]) == (2, 3)
    assert widest_run([False]) is None


def test_the_forest_has_sites_groups_and_the_undefined(tmp_path: Path) -> None:
    files = add_clinical(run.example(methods=run.METHODS[:1]))
    scores = files["result"]["methods"][0]["scores"]
    scores["sites"]["Bo"]["roc_auc"] = {"value": None, "undefined": "only one class among 12 test patients"}
    scores["groups"] = {"sex": {"f": {"rows": 40, "roc_auc": {"value": 0.7, "low": 0.6, "high": 0.8}}}}
    page = run.Page(write_report(run.write(tmp_path, files)))
    forest = next(chart for chart in page.data if "yaxis2" in chart["layout"])
    labels = forest["layout"]["yaxis"]["ticktext"]
    assert [label for label in labels if label.startswith("<b>")] == ["<b>By hospital</b>", "<b>By sex</b>"]
    assert labels[-1] == "f (40)"
    values = dict(zip(labels, forest["layout"]["yaxis2"]["ticktext"], strict=True))
    assert values["f (40)"] == "0.700 (0.600 to 0.800)"
    assert next(values[label] for label in labels if label.startswith("Bo")) == "not defined"
    assert forest["data"][0]["x"] == [
        scores["weighted"]["roc_auc"]["value"],
        *(scores["sites"][name]["roc_auc"]["value"] for name in run.HOSPITALS if name != "Bo"),
        0.7,
    ]


def test_columns_that_count_have_their_direction(shown: tuple[dict[str, Any], Any]) -> None:
    _, page = shown
    bars = next(chart for chart in page.data if "coefficient" in str(chart["layout"]["xaxis"]["title"]))
    assert bars["data"][0]["x"] == [0.81, 0.4]
    assert bars["data"][0]["text"] == ["lowers 0.810", "0.400, highest: male"]
    assert "need not cause the outcome" in page.text


def test_pooled_records_lead_nobody(tmp_path: Path) -> None:
    files = add_clinical(run.example())
    best = leader(files)
    best["algorithm"] = "centralized"
    page = run.Page(write_report(run.write(tmp_path, files)))
    assert f"Shown for {best['label']}" not in page.text
    assert "of those that need no pooled records" in page.text


def test_a_deployed_study_says_why_figures_are_missing(tmp_path: Path) -> None:
    files = run.example(methods=run.METHODS[:1])
    files["result"]["kind"] = "deployed"
    del files["result"]["methods"][0]["scores"]["reliability"]
    page = run.Page(write_report(run.write(tmp_path, files)))
    assert "There is no table of the patients: the hospitals told nothing of which one could be made." in page.text
    assert "the study did not ask for them with [evaluation] risk_bands" in page.text
    assert "rounded down to whole cells" in page.text
    sections = {a["id"] for tag, a in page.tags if tag == "section"}
    assert not sections & {"calibration", "decisions", "importance"}
    assert "forest" in sections


def test_many_hospitals_do_not_blow_the_page(tmp_path: Path) -> None:
    names = tuple(f"ward-{i}" for i in range(1000))
    plain = run.example(hospitals=names, methods=run.METHODS[:1], rounds=2, metrics=("accuracy",))
    small = write_report(run.write(tmp_path / "plain", plain)).stat().st_size
    files = add_clinical(plain)
    files["result"]["patient_table"] |= {"sites": {}, "sites_left_out": 1000}
    for column in files["result"]["patient_table"]["columns"]:
        column["sites"] = {}
    path = write_report(run.write(tmp_path / "clinical", files))
    assert path.stat().st_size < small + 250_000
    page = run.Page(path)
    assert "Of 1,000 hospitals the 8 with the lowest and the 8 with the highest score are shown" in page.text
    assert "There are 1,000 hospitals, too many for a column each." in page.text
    assert "The numbers of all 1,000 hospitals are in result.json." in page.text


@pytest.mark.parametrize("part", ["clinical", "flow", "patient_table"])
@pytest.mark.parametrize("wrong", ["text", [1, 2], {"all": 3, "columns": [4], "calibration": 5, "decision_curve": {}}])
def test_a_damaged_part_costs_no_page(tmp_path: Path, part: str, wrong: Any) -> None:
    files = add_clinical(run.example(methods=run.METHODS[:1]))
    if part == "clinical":
        files["result"]["methods"][0]["clinical"] = wrong
    else:
        files["result"][part] = wrong
    assert "In short" in run.Page(write_report(run.write(tmp_path, files))).text
