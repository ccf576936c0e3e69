"""What a study file may say, and how a wrong one is told."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny_study as tiny
from wardround.core.errors import Refusal
from wardround.study.demo import demo_study
from wardround.study.file import known_keys, parse_study, read_study

LEAST: dict[str, Any] = {"study": {"name": "t"}, "data": {"source": "triage"}}


def test_a_study_needs_a_name_and_data_and_the_rest_has_defaults() -> None:
    study = parse_study(LEAST, where="t.toml")
    assert (study.study.seed, study.study.rounds) == (0, 50)
    assert (study.model.name, study.algorithm.name, study.aggregator.name) == ("logistic", "fed_avg", "weighted_mean")
    assert study.data.shares == [0.6, 0.2, 0.2]
    assert study.transforms == []
    assert [study.stopping, study.compare, study.tune] == [None, None, None]


def test_other_keys_of_a_named_table_are_the_components_settings() -> None:
    study = parse_study({**LEAST, "algorithm": {"name": "fed_prox", "mu": 0.1}}, where="t.toml")
    assert study.algorithm.settings == {"mu": 0.1}
    assert parse_study({**LEAST, "data": {"source": "csv", "path": "p"}}, where="").data.settings == {"path": "p"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"study": {"name": "t", "round": 3}}, ["unknown key 'round'", "t.toml, [study]", "'rounds'"]),
        ({"stoping": {"patience": 3}}, ["unknown key 'stoping'", "'stopping'"]),
        ({"data": {"source": "csv", "preparation": {"scal": "x"}}}, ["'scal'", "[data.preparation]", "'scale'"]),
        ({"stopping": {}}, ["'patience' is missing", "[stopping]"]),
        ({"study": {"name": "../../etc"}}, ["'name' cannot be '../../etc'"]),
        ({"study": {"name": "t", "seed": -1}}, ["'seed'", "-1"]),
        ({"study": {"name": "t", "rounds": 2.5}}, ["'rounds'", "2.5"]),
        ({"study": {"name": "t", "rounds": True}}, ["'rounds'", "True"]),
        ({"participation": {"fraction": 0.0}}, ["'fraction'", "greater than 0"]),
        ({"participation": {"fraction": 1.5}}, ["'fraction'", "less than or equal to 1"]),
        ({"data": {"source": "csv", "shares": [0.5, 0.5]}}, ["'shares'"]),
        ({"data": {"source": "csv", "missing_target": "guess"}}, ["'missing_target'", "'refuse' or 'drop'"]),
        ({"algorithm": {"mu": 1}}, ["'name' is missing", "[algorithm]"]),
        ({"compare": {"methods": []}}, ["'methods'"]),
        ({"tune": {"parameters": {"a": 3}}}, ["'a' cannot be 3", "[tune.parameters]"]),
    ],
)
def test_a_wrong_study_is_told_with_its_place(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(Refusal) as told:
        parse_study({**LEAST, **change}, where="t.toml")
    assert all(word.lower() in str(told.value).lower() for word in words), str(told.value)
    assert "t.toml" in told.value.where
    assert "\n" not in str(told.value)


def test_known_keys_are_those_of_the_table() -> None:
    assert "rounds" in known_keys(["study"])
    assert set(known_keys(["stopping"])) == {"patience", "smallest", "user"}
    columns = {"impute", "scale", "indicators", "smallest_cell", "ranges", "categories", "most_categories"}
    assert set(known_keys(["data", "preparation"])) == columns
    assert known_keys(["nothing"]) == ()


def test_paths_are_taken_from_the_studys_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = tiny.write_study(tmp_path)
    assert read_study(study).data.settings["path"] == str((tmp_path / "patients.csv").resolve())
    absolute = tiny.write_study(tmp_path, data={"path": "/somewhere/p.csv"})
    assert read_study(absolute).data.settings["path"] == "/somewhere/p.csv"
    monkeypatch.setenv("HOME", str(tmp_path))
    at_home = tiny.write_study(tmp_path, data={"path": "~/p.csv"})
    assert read_study(at_home).data.settings["path"] == str((tmp_path / "p.csv").resolve())


def test_a_study_survives_its_own_json() -> None:
    study = demo_study()
    assert parse_study(study.model_dump(mode="json"), where="") == study


def test_the_demonstration_is_a_study_of_four_hospitals_and_three_methods() -> None:
    study = demo_study()
    assert study.data.source == "triage"
    assert study.compare is not None
    assert len(study.compare.methods) == 3


def test_ranges_and_categories_are_checked() -> None:
    for table in ({"ranges": {"age": [1.0, 1.0]}}, {"ranges": {"age": [0, 1, 2]}}, {"categories": {"sex": []}}):
        words = {"study": {"name": "a"}, "data": {"source": "csv", "preparation": table}}
        with pytest.raises(Refusal, match="should be"):
            parse_study(words, where="test")
