"""What algorithms tell of themselves, in the ordinary report: weights, groups, the end, and the choice of partners."""

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from tests.support import example_run as run
from wardround.report.run.diagnostics_charts import ceiling
from wardround.report.run.diagnostics_text import bullets_of, possessive, weight_of
from wardround.report.run.page import write_report
from wardround.runs.courses import read_courses, read_diagnostics

ROUNDS = 10


STOP = 8


def erosion(number: int) -> dict[str, Any]:
    """Freetown asks; Kenema keeps its weight, Port Loko loses 0.08 a round, Bo 0.25 and so all by round 4."""
    moved = min(number, STOP)
    return {
        "alpha": {
            "Freetown": 1.0,
            "Kenema": 1 - 0.001 * moved,
            "Port Loko": 1 - 0.08 * moved,
            "Bo": max(0.0, 1 - 0.25 * moved),
        },
        "distance": {"Freetown": 0.0, "Kenema": 0.1, "Port Loko": 0.8, "Bo": 1e30 if number == ROUNDS else 2.5},
        "rounds": {"Freetown": number, "Kenema": max(0, number - 2), "Port Loko": number, "Bo": number},
        "skipped": 2,
        "stopped": number >= STOP,
    }


def eroded() -> dict[str, Any]:
    files = run.example(rounds=ROUNDS)
    files["manifest"]["study"]["study"]["user"] = "Freetown"
    for record in files["rounds"]:
        if record["method"] == "weight_erosion":
            record["measures"]["told"] = erosion(record["round"])
    return files


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Any:
    files = eroded()
    choice = {"score": {"Kenema": 0.31, "Port Loko": 0.02, "Bo": -0.4}, "chosen": ["Kenema", "Port Loko"]}
    zero = {"method": "weight_erosion", "repeat": 0, "round": 0, "sites": [], "count": 4, "rows": 500, "seconds": 0.6}
    zero |= {"cpu_seconds": 1.0, "bytes_down": 20_000, "bytes_up": 23_000, "measures": {"told": choice}}
    files["rounds"].insert(0, zero)
    return run.Page(write_report(run.write(tmp_path_factory.mktemp("told"), files)))


def charts(page: Any, start: str) -> list[Any]:
    names = [a["id"] for tag, a in page.tags if tag == "div" and a.get("class") == "chart"]
    return [data for name, data in zip(names, page.data, strict=True) if name.startswith(f"chart-{start}")]


def test_weights_are_told_in_words(page: Any) -> None:
    # Port Loko: 1 - 0.08 x 8 = 0.36 when it stopped, below half; Kenema: 0.992; Bo: 1 - 0.25 x 4 = 0.
    assert (
        "Port Loko's weight fell to 0.36 by round 8: its patients pulled the model in another direction." in page.text
    )
    assert "Kenema kept its weight (0.99 in round 8)" in page.text
    assert "Bo's weight fell to 0 by round 4" in page.text
    assert "Freetown's weight" not in page.text
    assert "Freetown kept" not in page.text


def test_the_end_and_what_was_missed_are_told(page: Any) -> None:
    assert "Training was stopped by round 8: the hospitals no longer agreed" in page.text
    assert "2 rounds changed nothing, since Freetown was absent" in page.text
    assert "Kenema took part in 8 of 10 rounds." in page.text


def test_weights_and_distances_are_drawn_as_told(page: Any) -> None:
    weights, distances = charts(page, "told")
    lines = {trace["name"]: trace for trace in weights["data"]}
    assert list(lines) == ["Freetown (asks)", "Kenema", "Port Loko", "Bo"]
    assert lines["Port Loko"]["x"] == list(range(1, 11))
    assert lines["Port Loko"]["y"] == pytest.approx([1 - 0.08 * min(number, 8) for number in range(1, 11)])
    assert weights["layout"]["shapes"][0]["x0"] == 8
    # A distance of 1e30 (the own gradient vanished) must not flatten all others: 3 x 2.5 is the top.
    assert distances["layout"]["yaxis"]["range"][1] == pytest.approx(7.5 * 1.06)
    assert "(values above 7.500 are cut off)" in page.text
    for chart in (weights, distances):
        go.Figure(chart)
    table = next(t for t in page.tables if t[0] == ["Hospital", "Weight", "Distance"])
    assert table[3] == ["Port Loko", "0.360", "0.800"]


def test_choosing_partners_is_no_round_but_counts_in_the_traffic(page: Any) -> None:
    assert "Choosing partners" in page.text
    assert "Before training, Freetown chose Kenema and Port Loko out of 3 hospitals (for Personal model)." in page.text
    assert "Choosing took 43 kB of traffic and 600 ms" in page.text  # 20,000 + 23,000 bytes
    table = next(t for t in page.tables if t[0] == ["Hospital", "Score", "Partner"])
    assert table[1:] == [
        ["Kenema", "0.310", "chosen"],
        ["Port Loko", "0.020", "chosen"],
        ["Bo", "−0.400", "not chosen"],
    ]
    drawn = [trace["x"] for chart in (*charts(page, "progress"), *charts(page, "told")) for trace in chart["data"]]
    assert min(x for xs in drawn for x in xs) == 1


def test_the_cost_of_choosing_is_added_up_where_no_meter_tells() -> None:
    record = {"method": "m", "repeat": 0, "bytes_down": 10, "bytes_up": 5, "seconds": 1.0, "measures": {}}
    (course,) = read_courses([record | {"round": 0, "bytes_up": 100}, record | {"round": 1}, record | {"round": 2}])
    assert course.rounds == (1, 2)
    assert course.cost.traffic == 110 + 15 + 15
    assert course.choice is not None
    assert course.choice.cost.traffic == 110


def test_a_run_that_only_chose_partners_has_no_round(tmp_path: Path) -> None:
    files = run.example(rounds=2)
    del files["result"]
    files["rounds"] = [files["rounds"][0] | {"round": 0}]
    page = run.Page(write_report(run.write(tmp_path, files)))
    assert "interrupted before its first round was recorded" in page.text


def test_a_record_without_a_number_is_told_as_unreadable(tmp_path: Path) -> None:
    files = run.example(rounds=2)
    del files["rounds"][0]["round"]
    page = run.Page(write_report(run.write(tmp_path, files)))
    assert "One line of rounds.jsonl could not be read (cut off in writing) and is left out." in page.text


def test_rounds_between_evaluations_tell_nothing() -> None:
    told = read_diagnostics(
        [(1, {}), (2, {"alpha": {"A": 0.5, "B": None}}), (3, {}), (4, {"alpha": {"A": 0.2, "C": 1.0}})]
    )
    assert told.rounds == (2, 4)
    assert told.sites["alpha"] == {"A": (0.5, 0.2), "B": (None, None), "C": (None, 1.0)}
    assert told.stopped is None


@pytest.mark.parametrize(
    ("alphas", "words"),
    [
        ((1.0, 0.95), "<strong>A</strong> kept its weight (0.95 in round 2): its patients pulled the model in much"),
        ((1.0, 0.6), "weight fell to 0.6 by round 2: its patients pulled the model in a somewhat different direction."),
        ((0.0, 0.0), "<strong>A</strong> took no part in the training."),
        ((0.0, 0.7), "<strong>A</strong> kept its weight (0.7 in round 2)"),  # a newcomer
    ],
)
def test_weights_that_stay_come_late_or_never_come(alphas: tuple[float, float], words: str) -> None:
    came = 0 if alphas == (0.0, 0.0) else 1
    told = read_diagnostics([(r, {"alpha": {"A": x}, "rounds": {"A": came}}) for r, x in enumerate(alphas, start=1)])
    assert words in weight_of(told, "A")


def test_names_own_things() -> None:
    assert possessive("Bo") == "Bo&#x27;s"
    assert possessive("St. Thomas") == "St. Thomas&#x27;"


def test_groups_are_told_and_drawn(tmp_path: Path) -> None:
    files = run.example(rounds=4)
    groups = {1: (1, 1, 2, 0), 2: (1, 2, 2, 1), 3: (1, 2, 2, 1), 4: (1, 2, 2, 1)}
    for record in files["rounds"]:
        if record["method"] == "fed_avg":
            record["measures"]["told"] = {"cluster": dict(zip(run.HOSPITALS, groups[record["round"]], strict=True))}
    page = run.Page(write_report(run.write(tmp_path, files)))
    assert "Freetown and Bo share model 1." in page.text
    assert "Kenema and Port Loko share model 2." in page.text
    assert "The last change was seen in round 2." in page.text  # Bo was asked for the first time then: no change
    (chart,) = charts(page, "told")
    go.Figure(chart)
    assert chart["data"][0]["z"] == [[1, 1, 1, 1], [1, 2, 2, 2], [2, 2, 2, 2], [None, 1, 1, 1]]


def test_numbers_nobody_knows_are_drawn_by_their_name(tmp_path: Path) -> None:
    files = run.example(rounds=3)
    for record in files["rounds"]:
        record["measures"]["told"] = {"own_part": dict.fromkeys(run.HOSPITALS, 0.25), "temperature": 3.0}
    page = run.Page(write_report(run.write(tmp_path, files)))
    assert "Own part of each hospital" in page.text
    assert len(charts(page, "told")) == 3
    assert "temperature" not in page.text.lower()


def test_many_partners_are_counted_and_not_named(tmp_path: Path) -> None:
    names = [f"ward-{number}" for number in range(40)]
    last = [0.0] * 10 + [0.5] * 25 + [1.0] * 5
    told = read_diagnostics(
        [(1, {"alpha": dict.fromkeys(names, 1.0)}), (2, {"alpha": dict(zip(names, last, strict=True))})]
    )
    assert bullets_of(told, "") == [
        "Of 40 partners, 5 kept at least 90 % of the full weight, 25 count for less, and 10 no longer count at the end."
    ]


def test_the_top_of_an_axis_by_hand() -> None:
    assert ceiling([0.1, 0.2, 0.9]) == (0.9, False)
    # The 90th percentile of nine twos and a thousand is 2, three times that is 6.
    assert ceiling([2.0] * 9 + [1000.0]) == (6.0, True)


def test_without_anything_told_there_is_no_section(tmp_path: Path) -> None:
    page = run.Page(write_report(run.write(tmp_path, run.example(rounds=2))))
    assert "Who counted" not in page.text
    assert "Choosing partners" not in page.text
