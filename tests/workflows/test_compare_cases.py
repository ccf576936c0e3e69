"""Many settings in one command: each is an ordinary comparison, checked first, and finished ones are not done again."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import tiny_study as tiny
from wardround.core.errors import Refusal
from wardround.study.file import Study, parse_study, read_study
from wardround.study.methods import compared_methods
from wardround.workflows import compare_cases
from wardround.workflows.compare_cases import SplitCache, methods_at_rates, read_cases, study_of

Capture = pytest.CaptureFixture[str]
TRIAGE = {"source": "triage", "hospitals": 2, "patients": 160, "path": None, "site": None, "target": None}
IID = {"name": "iid", "title": "At random", "data": {"partition": {"name": "iid", "sites": 2}}}
NATURAL = {"name": "natural"}
TURNS = {"methods": ["global", "weight_erosion"], "users": "each", "rates": [0.05, 0.5]}


def write(folder: Path, *cases: dict[str, Any], **tables: dict[str, Any]) -> Path:
    compare = {"methods": ["global"], "repeats": 1, **tables.pop("compare", {})}
    tables = {"study": {"rounds": 2}, "data": TRIAGE, "evaluation": {"resamples": 50}, **tables}
    path: Path = tiny.write_study(folder, compare=compare, **tables)
    blocks = ["\n".join(["[[compare.cases]]", *(f"{key} = {tiny.toml(one[key])}" for key in one)]) for one in cases]
    path.write_text("\n\n".join([path.read_text(encoding="utf-8"), *blocks]) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def figures(result: dict[str, Any]) -> list[Any]:
    """What does not depend on the clock."""
    return [[one["name"], one["settings"], one["scores"]] for one in result["methods"]]


def repeatable_budgets(result: dict[str, Any]) -> dict[str, Any]:
    """Without grams of CO2: they follow from seconds, which no two runs share."""
    return {kind: one for kind, one in result["budgets"].items() if kind != "grams"}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two cases with rates to choose and each site asking: the study and its run folder."""
    folder = tmp_path_factory.mktemp("cases")
    study = write(folder, NATURAL, IID, compare=TURNS)
    with pytest.raises(SystemExit) as left:
        tiny.main(["compare", str(study), "--out", str(folder / "out"), "--json"])
    assert not left.value.code
    return study, folder / "out"


def test_every_case_is_a_run_folder_and_the_table_is_made_of_them(done: tuple[Path, Path]) -> None:
    _, out = done
    told = read(out / "result.json")
    assert (told["kind"], told["against"]) == ("cases", "global")
    assert [(case["name"], case["title"], len(case["sites"])) for case in told["cases"]] == [
        ("natural", "natural", 2),
        ("iid", "At random", 2),
    ]
    for case in told["cases"]:
        place = out / case["folder"]
        assert {"manifest.json", "rounds.jsonl", "result.json", "report.html"} <= {
            path.name for path in place.iterdir()
        }
        own = read(place / "result.json")
        assert own["kind"] == "compare"
        assert list(case["methods"]) == ["global", "weight_erosion"]
        for method in own["methods"]:
            row = case["methods"][method["name"]]
            assert row["value"] == method["scores"]["weighted"]["roc_auc"]["value"]
            verdict = [
                entry["verdict"]
                for entry in own["comparison"]
                if (entry["site"], entry["method"], entry["against"]) == ("all sites", method["name"], "global")
            ]
            assert [entry["verdict"] for entry in row["against"].values()][:1] == verdict
    assert read(out / "manifest.json")["kind"] == "cases"
    assert "At random" in (out / "report.html").read_text(encoding="utf-8")


def test_rates_are_told_with_every_loss_and_are_what_was_trained_with(done: tuple[Path, Path]) -> None:
    _, out = done
    own = read(out / "cases" / "natural" / "result.json")
    assert [entry["method"] for entry in own["rates"]] == ["global", "weight_erosion"]
    for entry, method in zip(own["rates"], own["methods"], strict=True):
        assert [one["rate"] for one in entry["tried"]] == [0.05, 0.5]
        best = min(entry["tried"], key=lambda one: one["loss"])
        assert entry["rate"] == best["rate"] == method["settings"]["learning_rate"]
    # For a method that is for all sites the loss at its rate is what round 2 of the first split wrote down.
    rounds = tiny.recorded(out / "cases" / "natural")
    last = next(r for r in rounds if (r["method"], r["repeat"], r["round"]) == ("global", 0, 2))
    chosen = min(own["rates"][0]["tried"], key=lambda one: one["loss"])
    assert last["measures"]["validation_loss"]["weighted"] == pytest.approx(chosen["loss"], rel=1e-5)
    assert any("test patients were not used" in note for note in own["notes"])


def test_budgets_are_in_every_result(done: tuple[Path, Path]) -> None:
    _, out = done
    for name in ("natural", "iid"):
        scope = read(out / "cases" / name / "result.json")["budgets"]["scope"]
        assert scope["methods"]["global"]["scope"] == scope["sites"] == 2
        assert 1 <= scope["methods"]["weight_erosion"]["scope"] <= 2


def test_a_case_gives_what_the_same_study_by_itself_gives(
    done: tuple[Path, Path], tmp_path: Path, capsys: Capture
) -> None:
    data = {**TRIAGE, "partition": {"name": "iid", "sites": 2}}
    alone = write(tmp_path, data=data, study={"rounds": 2, "name": "iid"}, compare=TURNS)
    said = tiny.call(capsys, "compare", alone, "--out", tmp_path / "alone")
    assert said.code == 0
    assert "site-2" in said.out
    case, own = (read(path / "result.json") for path in (done[1] / "cases" / "iid", tmp_path / "alone"))
    assert figures(case) == figures(own)
    assert case["comparison"] == own["comparison"]
    assert case["rates"] == own["rates"]
    assert repeatable_budgets(case) == repeatable_budgets(own)


@pytest.mark.slow
def test_interrupted_it_goes_on_with_the_cases_that_are_not_finished(tmp_path: Path, capsys: Capture) -> None:
    """Struck in the second case: the first is not touched again, and all ends as if nothing had been."""
    long = {"name": "long", "study": {"rounds": 60}}
    study = write(tmp_path, NATURAL, long)
    whole, out = tmp_path / "whole", tmp_path / "out"
    process: subprocess.Popen[str] = tiny.launch("compare", study, "--out", out)
    said = tiny.struck_at(process, out / "cases" / "long", 5, signal.SIGINT)
    assert said.code == 130
    assert f"wardround compare STUDY --resume --out {out}" in said.err
    assert not (out / "result.json").exists()
    first = out / "cases" / "natural" / "result.json"
    written = first.stat().st_mtime_ns
    assert tiny.call(capsys, "compare", study, "--out", out, "--resume").code == 0
    assert first.stat().st_mtime_ns == written
    assert tiny.call(capsys, "compare", study, "--out", whole).code == 0
    for name in ("natural", "long"):
        mended, unbroken = (read(folder / "cases" / name / "result.json") for folder in (out, whole))
        assert figures(mended) == figures(unbroken)
        assert repeatable_budgets(mended) == repeatable_budgets(unbroken)
        assert len(tiny.recorded(out / "cases" / name)) == len(tiny.recorded(whole / "cases" / name))
    table = [
        [{**case, "budgets": repeatable_budgets(case)} for case in read(folder / "result.json")["cases"]]
        for folder in (out, whole)
    ]
    assert table[0] == table[1]


def test_a_wrong_case_stops_all_before_anything_is_trained(tmp_path: Path, capsys: Capture) -> None:
    wrong = {"name": "by_colour", "data": {"partition": {"name": "by_column", "column": "colour"}}}
    said = tiny.call(capsys, "compare", write(tmp_path, NATURAL, wrong), "--out", tmp_path / "out")
    assert said.code == 2
    assert "by_colour" in said.err
    assert "'colour'" in said.err
    assert "study.toml" in said.err
    assert not (tmp_path / "out").exists()
    assert tiny.call(capsys, "check", write(tmp_path, NATURAL, wrong)).code == 2
    misspelt = tiny.call(capsys, "compare", write(tmp_path, {"name": "x", "titel": "y"}), "--out", tmp_path / "out")
    assert misspelt.code == 2
    assert "'title'" in misspelt.err


def parsed(*cases: dict[str, Any]) -> Study:
    content = {
        "study": {"name": "s", "rounds": 9},
        "data": {"source": "triage", "patients": 400, "shares": [0.4, 0.2, 0.4]},
        "model": {"name": "logistic", "l2": 0.5},
        "compare": {"methods": ["local"], "cases": list(cases)},
    }
    return parse_study(content, where="here")


def test_tables_of_a_case_are_laid_over_the_studys() -> None:
    merged = {"name": "a", "data": {"patients": 300}, "model": {"l2": 0.1}, "study": {"rounds": 3}}
    whole = {"name": "b", "data": {"source": "diabetes"}, "model": {"name": "linear"}}
    study = parsed(merged, whole)
    assert study.compare is not None
    first, second = (study_of(study, case) for case in study.compare.cases)
    assert first.data.settings == {"patients": 300}
    assert first.data.shares == [0.4, 0.2, 0.4]
    assert first.model.settings == {"l2": 0.1}
    assert (first.study.name, first.study.rounds) == ("a", 3)
    # A source or a model of its own: nothing is taken over from the study's.
    assert second.data.settings == {}
    assert second.data.shares == [0.6, 0.2, 0.2]
    assert second.model.settings == {}
    assert (second.study.name, second.study.rounds) == ("b", 9)
    assert first.compare is not None
    assert first.compare.cases == []


def test_a_split_that_several_cases_need_is_read_once_and_kept_no_longer_than_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = parsed({"name": "a"}, {"name": "b", "study": {"rounds": 3}}, {"name": "c", "data": {"patients": 300}})
    assert study.compare is not None
    a, b, c = (study_of(study, case) for case in study.compare.cases)
    wanted = [(a, 1), (a, 2), (b, 1), (b, 2), (c, 1)]
    shelf = SplitCache(wanted)
    first, second = shelf.take(a, 1), shelf.take(a, 2)
    assert shelf.take(b, 1) is first
    assert shelf.take(b, 2) is second
    # Another seed splits anew, and other data are other data.
    assert not np.array_equal(first.federation.x, second.federation.x)
    assert shelf.take(c, 1).federation.counts.sum() < first.federation.counts.sum()
    # Nobody waits for them any more, so they were not kept; read anew they are the same.
    again = shelf.take(a, 1)
    assert again is not first
    assert np.array_equal(again.federation.x, first.federation.x)
    # Where they are too large to be kept, each case reads its own.
    monkeypatch.setattr(compare_cases, "MOST_KEPT", first.federation.x.nbytes - 1)
    small = SplitCache(wanted)
    assert small.take(a, 1) is not small.take(b, 1)


def test_two_cases_of_one_name_are_refused() -> None:
    with pytest.raises(Refusal, match="wo cases are called 'a'"):
        read_cases(parsed({"name": "a"}, {"name": "a"}))


def test_a_method_that_diverges_with_every_rate_is_left_out() -> None:
    study = parse_study(
        {"study": {"name": "s"}, "data": {"source": "triage"}}
        | {"compare": {"methods": ["global", "local"], "rates": [0.1]}},
        where="here",
    )
    methods = compared_methods(study)
    good, bad = ({"method": name, "rate": rate} for name, rate in (("global", 0.1), ("local", None)))
    kept = methods_at_rates(study, methods, {"global": good, "local": bad})
    assert [(one.name, dict(one.settings)) for one in kept] == [("global", {"learning_rate": 0.1})]
    # Nothing could be compared without the reference.
    with pytest.raises(Refusal, match="diverged with every rate that was tried for global"):
        methods_at_rates(study, methods, {"global": {**good, "rate": None}, "local": good})


def test_paths_of_cases_are_taken_from_the_studys_folder(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, {"name": "own", "data": {"source": "csv", "path": "more.csv"}}))
    assert study.compare is not None
    assert study.compare.cases[0].data["path"] == str(tmp_path / "more.csv")
