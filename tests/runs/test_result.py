"""The format of a result: what workflows write is what the schema says; what others wrote is read as far as it goes."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support import example_partners, example_run
from tests.support import tiny_study as tiny
from tests.support.results import broken_rules
from wardround.core.errors import Refusal
from wardround.runs.fields import unknown_keys
from wardround.runs.folder import RunFolder
from wardround.runs.read import parse_result, read_result, require_result
from wardround.runs.result import (
    FORMAT,
    KINDS,
    CasesResult,
    MethodResult,
    PartnersResult,
    RunResult,
    TuneResult,
    values_of,
)
from wardround.runs.run import read_run
from wardround.runs.schema import schema_of_result
from wardround.runs.scores import MetricValue

COMMANDS: dict[str, tuple[str, dict[str, Any], type]] = {
    "run": ("run", {}, RunResult),
    "compare": ("compare", {"compare": {"methods": ["local", "fed_avg"], "repeats": 2}}, RunResult),
    "rates": ("compare", {"compare": {"methods": ["fed_avg", "local"], "rates": [0.1, 0.5]}}, RunResult),
    "cases": ("compare", {"compare": {"methods": ["local", "fed_avg"]}}, CasesResult),
    "groups": ("run", {"data": {"groups": ["sex"]}}, RunResult),
    "partners": ("partners", {"study": {"user": "bo"}, "partners": {"name": "ndoye"}}, PartnersResult),
    "tune": ("tune", {"tune": {"trials": 2, "folds": 2, "parameters": {"learning_rate": [0.01, 0.1]}}}, TuneResult),
}


@pytest.fixture(scope="module", params=COMMANDS)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, type]:
    """A real run of every command that writes a result."""
    from wardround.cli.app import main

    command, tables, sort = COMMANDS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    frame = tiny.patients(80)
    frame["sex"] = ["f", "m"] * (len(frame) // 2)
    study = tiny.write_study(folder, frame, **tables)
    if request.param == "cases":
        cases = '[[compare.cases]]\nname = "a"\n[[compare.cases]]\nname = "b"\n[compare.cases.study]\nrounds = 2\n'
        study.write_text(f"{study.read_text()}\n{cases}")
    with pytest.raises(SystemExit) as left:
        main([command, str(study), "--out", str(folder / "run"), "--json"])
    assert not left.value.code
    return folder / "run", sort


def test_what_a_command_wrote_is_read_without_loss(finished: tuple[Path, type]) -> None:
    folder, sort = finished
    for place in [folder, *folder.glob("cases/*")]:
        written = json.loads((place / "result.json").read_text())
        assert next(iter(written.items())) == ("format", FORMAT)
        found = read_result(place)
        assert found is not None
        assert found.remarks == ()
        assert unknown_keys(found.result) == [], "a key that the format does not describe"
        assert json.loads(json.dumps(values_of(found.result))) == written
        assert isinstance(found.result, sort if place == folder else RunResult)


def test_what_a_command_wrote_keeps_to_the_schema(finished: tuple[Path, type]) -> None:
    written = json.loads((finished[0] / "result.json").read_text())
    assert broken_rules(schema_of_result(), written) == []
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        return
    Draft202012Validator.check_schema(schema_of_result())
    assert list(Draft202012Validator(schema_of_result()).iter_errors(written)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "dance"}, "kind"),
        ({"sites": [{"name": "bo"}]}, "no train"),
        ({"format": 2}, "format"),
        ({"repeats": "two"}, "repeats"),
        ({"notes": "one"}, "notes"),
    ],
)
def test_the_schema_tells_a_wrong_result(change: dict[str, Any], words: str) -> None:
    good = values_of(small())
    assert broken_rules(schema_of_result(), json.loads(json.dumps(good))) == []
    assert any(words in one for one in broken_rules(schema_of_result(), json.loads(json.dumps(good | change))))


def small() -> RunResult:
    found = parse_result({"format": 1, "study": "s", "kind": "run", "repeats": 1}).result
    assert isinstance(found, RunResult)
    return found


def test_a_workflow_that_gives_a_wrong_value_or_none_is_stopped() -> None:
    for wrong in ({"value": "high"}, {}, {"value": 1.0, "low": [1]}):
        with pytest.raises(ValidationError):
            MetricValue.model_validate(wrong)
    with pytest.raises(ValidationError, match="settings"):
        MethodResult.model_validate({"name": "fed_avg", "label": "Common model"})


def test_a_key_that_was_not_given_is_not_written() -> None:
    assert MetricValue(value=0.5).plain() == {"value": 0.5}
    assert MetricValue(value=None, low=None, undefined="one class").plain() == {
        "value": None,
        "low": None,
        "undefined": "one class",
    }
    assert MetricValue(value=1, sites=3).plain()["value"] is not True
    assert type(MetricValue(value=1).plain()["value"]) is int, "a count stays a count"


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (None, "has no format number: an older version wrote it"),
        (FORMAT + 1, f"has format {FORMAT + 1}, and this version reads {FORMAT}"),
        (FORMAT, ""),
    ],
)
def test_files_of_other_versions_are_read_and_told(tmp_path: Path, version: int | None, words: str) -> None:
    files = example_run.example()
    files["result"] = {**files["result"], "format": version}
    if version is None:
        del files["result"]["format"]
    run = read_run(example_run.write(tmp_path, files))
    assert [one.name for one in run.methods] == [name for name, _ in example_run.METHODS]
    assert [words in one for one in run.remarks] == ([True] if words else [])


def test_a_key_of_a_newer_version_is_told_and_kept() -> None:
    content = example_run.example()["result"]
    content["weather"] = "rain"
    for method in content["methods"]:
        method["scores"]["weighted"]["roc_auc"]["p10"] = 0.3
    found = parse_result(content)
    (remark,) = found.remarks
    assert remark.endswith("left out: weather, methods.scores.weighted.p10.")
    assert values_of(found.result)["weather"] == "rain"


@pytest.mark.parametrize("content", [b"", b'{"study": ', b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_a_torn_result_is_refused_and_a_missing_one_told(tmp_path: Path, content: bytes) -> None:
    assert read_result(tmp_path) is None
    with pytest.raises(Refusal, match=r"not finished .*result\.json.*--resume"):
        require_result(tmp_path)
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(Refusal, match=r"cannot be read as JSON.*result\.json"):
        read_result(tmp_path)


RUBBISH = (None, 7, -1.5, True, "text", [], [None, 3, "a", [1]], {}, {"a": {"b": 1}}, 10**400, float("nan"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", RUBBISH, ids=lambda value: str(value)[:12])
def test_no_rubbish_breaks_the_reader(kind: str, value: Any) -> None:
    sort = KINDS[kind]
    for field in sort.model_fields:
        if field != "kind":
            assert isinstance(parse_result({"kind": kind, field: value}).result, sort)


@pytest.mark.parametrize("value", RUBBISH, ids=lambda value: str(value)[:12])
def test_rubbish_anywhere_in_a_result_breaks_nothing(value: Any) -> None:
    """Each place of a real result, one after the other, is replaced."""
    for content in (example_run.example(hospitals=("A",), rounds=1)["result"], example_partners.example()):
        for replaced in replacements(content, value):
            parse_result(replaced)


def replacements(content: Any, value: Any) -> list[Any]:
    found = []
    if isinstance(content, dict):
        for key, inner in content.items():
            if key != "kind":
                found += [{**content, key: other} for other in [value, *replacements(inner, value)]]
    elif isinstance(content, list) and content:
        found += [[other, *content[1:]] for other in [value, *replacements(content[0], value)]]
    return found


def test_an_unknown_number_is_none_and_never_zero() -> None:
    found = parse_result({"kind": "run", "sites": [{"name": "bo", "train": "many"}], "methods": [{"seconds": True}]})
    assert isinstance(found.result, RunResult)
    assert found.result.sites[0].train is None
    assert found.result.methods[0].seconds is None
    assert found.result.methods[0].at("bo", "roc_auc").reason == "not measured"


def test_a_result_is_written_with_its_format_and_null_for_what_json_lacks(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", resume=False)
    result = small().model_copy(update={"truth": {"noise": float("nan")}})
    folder.write_result(result)
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (written["format"], written["truth"]) == (FORMAT, {"noise": None})


def test_rounds_that_will_be_done_again_are_dropped_and_may_be_written_anew(tmp_path: Path) -> None:
    from wardround.core.contracts import RoundRecord

    folder = RunFolder.create(tmp_path / "run", resume=False)
    records = [RoundRecord(number, ("bo",), 1, 10, 0.1, 0.1, 1, 1, {}) for number in (1, 2, 3)]
    for record in records:
        folder.record("fed_avg", 0, record)
    folder.drop_rounds_after(1)
    assert [one["round"] for one in folder.records()] == [1]
    for record in records:
        folder.record("fed_avg", 0, record)
    assert [one["round"] for one in folder.records()] == [1, 2, 3]
