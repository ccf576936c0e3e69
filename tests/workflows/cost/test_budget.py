"""[budget] in a study file: where it stops, what it refuses, and what the result tells."""

import json

import pytest

from tests.support import tiny_study as tiny
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.engine.machine.operations import operations_of_training
from wardround.study.assemble import model_of
from wardround.study.file import parse_study, read_study
from wardround.study.sections.grid_intensity import GRAMS_PER_KWH, grams_per_kwh


def run(folder, capsys, **budget):
    path = tiny.write_study(folder, budget=budget)
    return tiny.call(capsys, "run", path, "--out", folder / "out")


def result(folder):
    return json.loads((folder / "out" / "result.json").read_text())


def test_bytes_stop_training_before_they_are_passed_and_the_best_model_is_kept(tmp_path, capsys):
    """Eight numbers down and nine up, 68 bytes a site: 272 a round. Three rounds fit into 1,000, and a fourth not."""
    said = run(tmp_path, capsys, bytes=1000)
    assert said.code == 0, said.err
    found = result(tmp_path)
    method = found["methods"][0]
    assert (method["rounds"], method["stopped_early"]) == (3, True)
    assert method["meters"]["traffic"]["bytes_down"] + method["meters"]["traffic"]["bytes_up"] == 816
    losses = [one["measures"]["validation_loss"]["weighted"] for one in tiny.recorded(tmp_path / "out")]
    assert method["best_round"] == 1 + losses.index(min(losses))
    assert any(
        "another round could have passed the budget of 1,000 bytes (816 spent" in note for note in found["notes"]
    )


def test_a_budget_for_less_than_one_round_is_refused(tmp_path, capsys):
    said = run(tmp_path, capsys, bytes=271)
    assert said.code == 2
    assert "budget of 271 bytes is spent before it begins: one round takes 272" in said.err
    assert not (tmp_path / "out" / "result.json").exists()


def test_a_first_round_of_messages_of_several_sizes_counts_each_as_large_as_it_is(tmp_path, capsys):
    """Four sites, of which one trains the whole of eight hidden units and three a quarter: two units.

    3 inputs, 2 classes: 8 * 4 + 9 * 2 = 50 numbers and 2 * 4 + 3 * 2 = 14, and one more up, the weight. So a round is
    4 * (50 + 51) + 3 * 4 * (14 + 15) = 752 bytes, and not 4 * 404.
    """
    told = []
    for limit in (751, 752):
        (tmp_path / str(limit)).mkdir()
        path = tiny.write_study(
            tmp_path / str(limit),
            model={"name": "mlp", "hidden": [8]},
            algorithm={"name": "federated_dropout", "width": 0.25, "widths": {"bo": 1.0}},
            budget={"bytes": limit},
        )
        told.append(tiny.call(capsys, "run", path, "--out", tmp_path / str(limit) / "out"))
    assert (told[0].code, told[1].code) == (2, 0), told[1].err
    assert "one round takes 752" in told[0].err
    assert not (tmp_path / "751" / "out").exists() or not any((tmp_path / "751" / "out").iterdir())
    traffic = result(tmp_path / "752")["methods"][0]["meters"]["traffic"]
    assert traffic["bytes_down"] + traffic["bytes_up"] == 752


def test_energy_that_the_messages_alone_will_take_is_known_before_the_first_round(tmp_path, capsys):
    """272 bytes at 6 Wh a GB are 1.632e-9 kWh; of 56 g each, 9.14e-8 g."""
    for limits, told in (
        ({"kilowatt_hours": 1.63e-9}, "one round takes 1.632e-09"),
        ({"grams_co2": 9.1e-8, "country": "FRA"}, "one round takes 9.1392e-08"),
    ):
        said = run(tmp_path, capsys, **limits)
        assert said.code == 2
        assert told in " ".join(said.err.split())


def test_what_the_first_round_took_alone_is_told_as_such(tmp_path, capsys):
    """How long it takes nobody knows before it."""
    said = run(tmp_path, capsys, seconds=1e-9)
    assert said.code == 0, said.err
    (note,) = [one for one in result(tmp_path)["notes"] if "budget" in one]
    assert "after round 1 of 4: it took more than the budget of 1e-09 seconds, which was not known before it" in note
    assert "another round" not in note


def test_operations_are_those_of_the_models_gradient(tmp_path, capsys):
    study = read_study(tiny.write_study(tmp_path))
    task = Task((3,), ("0", "1"))
    model = model_of(study, task)
    one = operations_of_training(fed_avg(model, weighted_mean()), model, task)
    # Three features times two classes, forward and back: 2 x 6 and 2 x 6.
    assert one == 24
    rows = 4 * 21  # thirty rows a site, of which seventy in a hundred train
    said = run(tmp_path, capsys, flops=2.5 * rows * one)
    assert said.code == 0, said.err
    assert result(tmp_path)["methods"][0]["rounds"] == 2


def test_without_a_budget_a_study_has_the_words_it_had(tmp_path):
    study = read_study(tiny.write_study(tmp_path))
    assert "budget" not in study.model_dump(mode="json")


def test_wrong_budgets_are_refused(tmp_path, capsys):
    assert run(tmp_path, capsys, bytes=0).code == 2
    said = run(tmp_path, capsys, grams_co2=1.0, country="Atlantis")
    assert said.code == 2
    assert "grid intensity is known for 'Atlantis'" in said.err
    for words, told in (
        ({"sites": {"Bo": 20.0}}, "There is no site called 'Bo'"),
        ({"sites": {"bo": -20.0}}, "The grams per kWh of a site must be 0 or more"),
        ({"country": "FRA", "grams_per_kwh": 50.0}, "two ways to say the same"),
    ):
        said = run(tmp_path, capsys, grams_co2=1.0, **words)
        assert said.code == 2
        assert told in " ".join(said.err.split())
        assert "[budget]" in said.err
    with pytest.raises(Refusal, match="Unknown key 'byte'"):
        parse_study({"study": {"name": "a"}, "data": {"source": "csv"}, "budget": {"byte": 1}}, where="test")


def test_grams_follow_the_countries_and_the_sites_own_factors(tmp_path, capsys):
    assert (grams_per_kwh("fra"), grams_per_kwh("FRA")) == (56, 56)
    assert min(GRAMS_PER_KWH.values()) >= 20
    said = run(tmp_path, capsys, grams_co2=1e6, country="FRA", sites=dict.fromkeys(tiny.HOSPITALS[:2], 112.0))
    assert said.code == 0, said.err
    told = result(tmp_path)["methods"][0]["meters"]["energy"]
    # Two of four sites count double: (56 + 56 + 112 + 112) / 4 = 84 g a kWh.
    assert told["grams_co2"] == pytest.approx(told["watt_hours"] / 1000 * 84)
