"""Operations and time of a study with a [budget]: per site and round, per point of accuracy, and where they stand."""

import json

import pytest

from tests.support import tiny_study as tiny
from wardround.core.contracts import RoundRecord
from wardround.workflows.cost.operations import operations_told


def record(number: int, rows: int, count: int, seconds: float) -> RoundRecord:
    return RoundRecord(number, (), count, rows, seconds, 0.0, 0, 0)


def test_by_hand():
    """40 + 20 rows at 10 operations are 600, by 2 + 1 answers 200 each; 12 points gained: 50 a point."""
    records = [record(1, 40, 2, 3.0), record(2, 20, 1, 1.0), record(3, 0, 0, 2.0)]
    told = operations_told(10.0, records, 12.0)
    assert (told["operations"], told["operations_a_site_a_round"], told["seconds_a_round"]) == (600, 200, 2)
    assert told["operations_a_point"] == pytest.approx(50)
    assert told["seconds_a_point"] == pytest.approx(0.5)
    # Where nothing was gained there is no cost a point, and of no rounds none at all.
    assert operations_told(10.0, records[:1], None)["operations_a_point"] is None
    assert operations_told(10.0, [], None)["operations_a_site_a_round"] is None
    # Over real sites rows are known by name only.
    assert operations_told(10.0, records, None, rows_of=lambda one: 5)["operations"] == 150


def test_a_study_with_a_budget_tells_them_in_result_and_report(tmp_path, capsys):
    """Eighteen of thirty rows train at each of four sites, 24 operations a row: 432 a site and round, in 4 rounds."""
    path = tiny.write_study(tmp_path, budget={"flops": 1e9})
    said = tiny.call(capsys, "run", path, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    told = json.loads((tmp_path / "out" / "result.json").read_text())["methods"][0]["meters"]["operations"]
    assert told["operations"] == 4 * 4 * 432
    assert told["operations_a_site_a_round"] == 432
    meters = json.loads((tmp_path / "out" / "result.json").read_text())["methods"][0]["meters"]
    gained = meters["energy"]["grams_co2_a_point"]
    points = meters["energy"]["grams_co2"] / gained if gained else None
    assert told["operations_a_point"] == (pytest.approx(4 * 4 * 432 / points) if points else None)
    page = (tmp_path / "out" / "report.html").read_text()
    assert (
        "What each hospital&#x27;s part of a round cost" in page or "What each hospital's part of a round cost" in page
    )
    assert ">432<" in page


def test_a_comparison_with_a_budget_is_told_at_equal_cost(tmp_path, capsys):
    """A site alone sends nothing, so no traffic binds it; CO2 is counted by the study's own factor."""
    compare = {"methods": ["local", "fed_avg", "scaffold"], "repeats": 1}
    path = tiny.write_study(tmp_path, compare=compare, budget={"grams_co2": 1e3, "grams_per_kwh": 0.0})
    said = tiny.call(capsys, "compare", path, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    found = json.loads((tmp_path / "out" / "result.json").read_text())["budgets"]
    assert found["traffic"]["methods"]["local"]["spends"] is False
    # SCAFFOLD sends twice as much, so after FedAvg's traffic it has done about half of its rounds.
    assert found["traffic"]["methods"]["fed_avg"]["round"] == tiny.ROUNDS
    assert found["traffic"]["methods"]["scaffold"]["round"] == tiny.ROUNDS // 2
    assert {one["spends"] for one in found["grams"]["methods"].values()} == {False}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "After the same cost" in page
    assert "spends nothing" in page
