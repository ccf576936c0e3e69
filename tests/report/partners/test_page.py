"""The page about partners: the answer first, every number as in the result, honest about what is missing."""

import itertools
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from tests.support import example_partners as asked
from tests.support import example_run as run
from tests.support.results import parsed
from wardround.report.partners.answer import improvement, partnership_of
from wardround.report.run.page import write_report
from wardround.runs.scores import MetricValue


def page_of(folder: Path, result: dict[str, Any]) -> Any:
    return run.Page(write_report(run.write(folder, {"result": result})))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return page_of(tmp_path_factory.mktemp("partners"), asked.example())


def chart(page: Any, name: str) -> Any:
    """The data of the chart of that name, by the order in which the page holds them."""
    names = [a["id"] for tag, a in page.tags if tag == "div" and a.get("class") == "chart"]
    return page.data[names.index(f"chart-{name}")]


def test_the_answer_comes_first_and_result_json_is_enough(page: Any) -> None:
    order = [
        "ebola triage",
        "With whom should Freetown train?",
        "Train with Kenema and Bo, not with Makeni.",
        "With Kenema and Bo your log loss falls",
        "What this cannot tell",
        "How well each hospital fits",
        "Cost of this answer",
    ]
    places = [page.text.index(words) for words in order]
    assert places == sorted(places)
    assert "manifest.json" not in page.text
    assert [a for _, a in page.tags if a.get("class") == "answer"]


def test_the_interval_picture_shows_a_lower_loss_as_better_together(page: Any) -> None:
    # together - alone = 0.447 - 0.512 = -0.065 in a loss, so 0.065 better; the interval -0.112 to -0.018 turns around.
    trace = chart(page, "gain-0")["data"][0]
    assert trace["x"] == pytest.approx([0.065])
    assert trace["error_x"]["array"] == pytest.approx([0.112 - 0.065])
    assert trace["error_x"]["arrayminus"] == pytest.approx([0.065 - 0.018])
    low, high = chart(page, "gain-0")["layout"]["xaxis"]["range"]
    assert low < 0
    assert high > 0.112
    words = [note["text"] for note in chart(page, "gain-0")["layout"]["annotations"]]
    assert words == ["◀ better alone", "better together ▶"]


@pytest.mark.parametrize(
    ("metric", "alone", "together", "told", "better"),
    [
        ("roc_auc", 0.7, 0.75, 0.05, 0.05),
        ("roc_auc", 0.75, 0.7, -0.05, -0.05),
        ("roc_auc", 0.75, 0.7, 0.05, -0.05),  # told as alone - together
        ("log_loss", 0.5, 0.4, -0.1, 0.1),
        ("log_loss", 0.5, 0.4, 0.1, 0.1),  # told as what is gained
        ("log_loss", 0.4, 0.5, 0.1, -0.1),
        ("log_loss", None, None, -0.1, 0.1),
        ("unknown", 1.0, 3.0, 2.0, 2.0),
    ],
)
def test_the_improvement_is_positive_where_it_is_better_together(
    metric: str, alone: float | None, together: float | None, told: float, better: float
) -> None:
    found = improvement(MetricValue(value=told, low=told - 0.01, high=told + 0.02), metric, alone, together)
    assert found.value == better
    same = found.value == told
    assert found.low == pytest.approx(better - (0.01 if same else 0.02))
    assert found.high == pytest.approx(better + (0.02 if same else 0.01))


def test_bars_start_at_the_cut_and_the_chosen_are_marked(page: Any) -> None:
    # Kenema: -0.012 - (-0.08) = 0.068 right of the cut; Makeni: -0.287 + 0.08 = 0.207 left of it; lines of 2 errors.
    shown = chart(page, "scores-0")
    trace = shown["data"][0]
    assert trace["base"] == -0.08
    assert trace["x"] == pytest.approx([0.068, 0.037, -0.207])
    assert trace["error_x"]["array"] == pytest.approx([0.042, 0.068, 0.092])
    assert shown["layout"]["yaxis"]["ticktext"] == ["✓ Kenema", "✓ Bo", "Makeni"]
    colours = trace["marker"]["color"]
    assert colours[0] == colours[1] != colours[2]
    assert shown["layout"]["shapes"][0]["x0"] == -0.08
    # A standard error that is not known draws no line, and no caps that would claim one of length zero.
    unknown = chart(page, "further-0")["data"][0]
    assert unknown["error_x"]["array"] == pytest.approx([0.024, 0.016, 0.0])
    assert unknown["error_x"]["width"] == 0


def test_every_verdict_score_and_reason_is_the_results(page: Any) -> None:
    result = asked.example()
    rows = {row[0]: row[1:] for row in next(t for t in page.tables if t[0][1:2] == ["Verdict"])[1:]}
    assert list(rows) == ["Kenema", "Bo", "Makeni", "Port Loko"]
    assert [row[0] for row in rows.values()] == ["partner", "partner", "not taken", "did not answer"]
    for site, score in result["measures"][0]["scores"].items():
        assert rows[site][1].replace("−", "-") == f"{score['value']:.3f} ± {score['error']:.3f}"
        assert rows[site][2] == result["verdict"]["reasons"][site]
    assert rows["Port Loko"][1] == "none"
    table = next(t for t in page.tables if t[0][1:] == [own["label"] for own in result["measures"]])
    assert table[3] == ["Makeni", "−0.287 ± 0.046", "−0.051", "−2.400 ± 0.300"]
    assert table[4][1:] == ["−0.080", "0.000", "−1.000"]


def test_matrix_and_map_are_the_results(page: Any) -> None:
    result = asked.example()
    trace = chart(page, "similarity-0-0")["data"][0]
    assert trace["z"] == result["similarity"][0]["matrix"]
    assert chart(page, "similarity-0-0")["layout"]["xaxis"]["ticktext"][:2] == ["<b>Freetown</b>", "Kenema"]
    marked = {trace["name"]: (trace["text"], trace["x"], trace["y"]) for trace in chart(page, "map-0")["data"]}
    assert marked["asks"] == (["Freetown"], [-0.2], [0.02])
    assert marked["chosen"][0] == ["Kenema", "Bo"]
    assert marked["not chosen"][0] == ["Makeni"]
    assert "The map shows 87 % of the differences." in page.text


def test_differences_are_told_largest_first_and_chance_is_folded_away(page: Any) -> None:
    malaria = page.text.index("Malaria tests are positive in 54 % there")
    age = page.text.index("Makeni's patients are younger")
    chance = page.text.index("1 further feature, which chance may explain", age)
    assert malaria < age < chance < page.text.index("Fever is recorded in 71 % there")
    # Kenema has one feature, and it does not differ beyond chance.
    assert "No difference is larger than chance would explain." in page.text


def test_agreement_is_put_into_words_only_where_there_are_hospitals_enough(page: Any) -> None:
    rows = next(t for t in page.tables if t[0][:2] == ["Measure", "Compared with"])[1:]
    assert rows[0] == [
        "Transfer loss",
        "Leaving one out",
        "1.000",
        "3",
        "too few hospitals to distinguish agreement from chance",
    ]
    assert rows[1][2:] == ["0.500", "7", "some agreement. Bo and Makeni change places."]


def test_shares_are_held_against_limits(page: Any) -> None:
    # 120 + 260 + 96 = 476 training patients: 25.2 %, 54.6 % and 20.2 %.
    rows = [row[1:] for row in next(t for t in page.tables if t[0][1:2] == ["Training patients"])[1:]]
    assert rows[0] == ["120", "25 %", "33 %", "none", "no limit"]
    assert rows[1] == ["260", "55 %", "33 %", "50 %", "over its limit"]
    assert rows[2] == ["96", "20 %", "33 %", "40 %", "within its limit"]
    limits = chart(page, "dilution-0")["data"][2]
    assert (limits["x"], limits["y"]) == ([0.5, 0.4], [1, 2])  # a limit of 1 is none


def test_feedback_is_folded_a_hospital(page: Any) -> None:
    assert "Kenema (place 1 of 3, chosen)" in page.text
    assert "Makeni (place 3 of 3, not chosen)" in page.text
    for words in ("Contact counts twice as much", "Malaria is far more common", "Recording the viral load would help"):
        assert words in page.text
    opened = [a for tag, a in page.tags if tag == "details" and "open" in a]
    assert opened == []


def test_cost_and_limits_are_told(page: Any) -> None:
    # 61,200 and 48,300 bytes.
    assert "14 rounds of requests and replies, 61 kB to the hospitals, 48 kB from the hospitals and 7.4 s" in page.text
    assert "Port Loko has not answered, so nothing is known of it." in page.text
    assert "The gain was measured on only 40 patients" in page.text
    assert "Age was missing for 14 patients" in page.text


def test_charts_are_valid_and_can_be_read_without_eyes(page: Any) -> None:
    for one in page.data:
        go.Figure(one)  # raises on a property or value that Plotly does not know
    boxes = [a for tag, a in page.tags if tag == "div" and a.get("class") == "chart"]
    assert len(boxes) == len(page.data) == 8  # gain, three measures, matrix, map, shares, patients
    assert all(a["role"] == "img" and len(a["aria-label"] or "") > 30 for a in boxes)
    assert len({a["id"] for a in boxes}) == len(boxes)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert sum(tag == "caption" for tag, _ in page.tags) == len(page.tables)


@pytest.mark.parametrize("missing", [key for key in asked.RESULT if key != "kind"])
@pytest.mark.parametrize("emptied", [True, False])
def test_every_part_may_be_missing_or_empty(tmp_path: Path, missing: str, emptied: bool) -> None:
    result = asked.example()
    if emptied:
        result[missing] = type(result[missing])()
    else:
        del result[missing]
    page = page_of(tmp_path, result)
    assert "The answer" in page.text
    assert "None" not in page.text
    assert "(no name)" not in page.text


@pytest.mark.parametrize(
    "spoiled",
    [
        {"verdict": "yes", "measures": [3], "similarity": [{}], "map": [], "pairs": [None], "dilution": {}},
        {
            "measures": [{"scores": {"Bo": 0.5, "X": {"value": "?"}}}],
            "asking": None,
            "agreement": [{}],
            "feedback": [{}],
        },
        {"similarity": [{"sites": ["A", "B"], "matrix": [[1.0]]}], "dilution": [{"row_share": 0.1}], "cost": 3},
        {"verdict": {"gain": {"difference": float("nan")}, "helps": 7, "partners": "Bo"}, "pairs": [{"features": [1]}]},
    ],
)
def test_what_is_spoiled_gives_a_page_all_the_same(tmp_path: Path, spoiled: dict[str, Any]) -> None:
    page = page_of(tmp_path, {"kind": "partners"} | spoiled)
    assert "The answer" in page.text
    assert "nan" not in page.text.lower()


def test_an_answer_without_words_gets_words(tmp_path: Path) -> None:
    result = asked.example()
    del result["verdict"]["headline"], result["verdict"]["gain"]["words"]
    page = page_of(tmp_path, result)
    assert "Train with Kenema and Bo, not with Makeni." in page.text
    assert "better by 0.065 in Log loss (interval 0.018 to 0.112) on 40 patients held out." in page.text
    result["verdict"] |= {"helps": "no", "partners": [], "others": ["Kenema", "Bo", "Makeni"]}
    assert "Train alone." in page_of(tmp_path, result).text


def test_who_withdrew_is_no_partner(tmp_path: Path) -> None:
    result = asked.example()
    result["verdict"]["withdrawn"] = ["Bo"]
    assert partnership_of(parsed(result)).status("Bo") == "withdrew"
    assert "Bo withdrew and cannot be chosen." in page_of(tmp_path, result).text


def test_long_names_are_cut_in_charts_and_whole_in_tables(tmp_path: Path) -> None:
    long = "Holy Spirit Regional Teaching Hospital of the Northern Province, " * 3 + "Makeni"
    page = page_of(tmp_path, asked.renamed(asked.example(), {"Makeni": long}))
    assert any(row[0] == long for table in page.tables for row in table)
    labels = [name for one in page.data for name in one["layout"]["yaxis"].get("ticktext", ())]
    assert max(map(len, labels)) <= 26
    assert any(name.startswith("Holy Spirit") and name.endswith("…") for name in labels)


def test_one_hospital_has_nobody_to_train_with(tmp_path: Path) -> None:
    page = page_of(tmp_path, asked.sized(1))
    assert "Train alone." in page.text
    assert "Which hospitals are alike" not in page.text
    assert "How well each hospital fits" not in page.text


def test_thirty_hospitals_are_all_there(tmp_path: Path) -> None:
    page = page_of(tmp_path, asked.sized(30))
    assert "Train with 9 hospitals, not with the other 20." in page.text
    assert len(chart(page, "scores-0")["data"][0]["x"]) == 29
    assert len(chart(page, "similarity-0-0")["data"][0]["z"]) == 30
    verdicts = [table for table in page.tables if table[0][1:2] == ["Verdict"]]
    assert [len(table) - 1 for table in verdicts] == [9, 20]
    assert "Hospital 2: 1 feature differs beyond chance" in page.text
    # Names would lie on each other: on the map the asking one alone is named.
    named = [trace["name"] for trace in chart(page, "map-0")["data"] if "text" in trace["mode"]]
    assert named == ["asks"]
    assert "read its distances with care" in page.text


def test_the_truth_of_made_up_data_is_told(tmp_path: Path) -> None:
    result = asked.example() | {"truth": {"groups": {"coast": ["Freetown", "Kenema", "Bo"]}}}
    assert "Freetown, Kenema and Bo (coast)." in page_of(tmp_path, result).text
