"""The model card says what the run folder says, and withholds what would tell of few patients."""

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import tiny_study as tiny
from tests.support.amount import examples
from wardround.core.errors import Refusal
from wardround.report.model_card.facts import PARTS, card_facts, withheld_sites, write_card
from wardround.report.model_card.text import card_text, safe
from wardround.runs.folder import RunFolder
from wardround.study.file import read_study
from wardround.study.methods import own_method
from wardround.workflows.run import run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four hospitals with 100 patients each: 60 to learn from, 20 to choose by, 20 to judge."""
    folder = tmp_path_factory.mktemp("card")
    words = {"purpose": "find sepsis early"}
    study = read_study(tiny.write_study(folder, tiny.patients(100), study=words))
    run(study, RunFolder.create(folder / "run", resume=False), [own_method(study)], kind="run")
    return folder / "run"


def changed(finished: Path, folder: Path, **facts: Any) -> Path:
    """The run folder with some words of its result replaced."""
    for name in ("manifest.json", "rounds.jsonl", "model.safetensors"):
        (folder / name).write_bytes((finished / name).read_bytes())
    result = {**json.loads((finished / "result.json").read_text()), **facts}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_what_it_says_is_what_the_run_says(finished: Path) -> None:
    path = write_card(finished)
    facts = json.loads((finished / "model_card.json").read_text())
    result = json.loads((finished / "result.json").read_text())
    manifest = json.loads((finished / "manifest.json").read_text())
    weighted = result["methods"][0]["scores"]["weighted"]["roc_auc"]
    told = facts["methods"][0]["figures"]["roc_auc"]
    assert told == {"value": weighted["value"], "low": weighted["low"], "high": weighted["high"]}
    assert facts["data"]["rows"] == {"train": 240, "validation": 80, "test": 80}
    assert facts["data"]["by_site"]["bo"] == {"train": 60, "validation": 20, "test": 20}
    assert facts["data"]["withheld"] == 0
    model = hashlib.sha256((finished / "model.safetensors").read_bytes()).hexdigest()
    assert facts["model"]["files"] == {"model.safetensors": model}
    assert facts["hashes"] == {"study": manifest["study_hash"], "data": manifest["data_hash"]}
    assert facts["methods"][0]["bytes_down"] == sum(one["bytes_down"] for one in tiny.recorded(finished))
    assert facts["methods"][0]["took_part"] == dict.fromkeys(tiny.HOSPITALS, tiny.ROUNDS)
    text = path.read_text()
    assert "find sepsis early" in text
    assert f"{weighted['value']:.3f} ({weighted['low']:.3f} to {weighted['high']:.3f})" in text
    assert model in text
    assert "No differential privacy" in text
    assert "not a medical device" in text
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "## What it is for",
        "## Data",
        "## How good it is",
        "## Privacy",
        "## Cost of training",
        "## Limits",
        "## Reporting items (TRIPOD+AI)",
        "## Versions and hashes",
    ]


def test_no_site_that_the_result_does_not_name(finished: Path) -> None:
    names = json.dumps(card_facts(finished))
    for site in tiny.HOSPITALS:
        assert site in names
    assert "patients.csv" not in names  # nor any place of this machine


def test_a_purpose_that_is_not_told_is_a_limit(finished: Path) -> None:
    facts = {**card_facts(finished), "purpose": ""}
    assert "Its purpose is not recorded" in card_text(facts)


def counts(*rows: tuple[int, int, int]) -> dict[str, dict[str, int]]:
    return {f"s{number}": dict(zip(PARTS, row, strict=True)) for number, row in enumerate(rows)}


def test_who_is_withheld_with_whom() -> None:
    # s2 has 9 test patients. Alone it would be the total less the others, so the next smallest (s1) goes with it.
    assert withheld_sites(counts((100, 30, 30), (50, 20, 20), (30, 10, 9)), 10, zero_is_few=False) == {"s1", "s2"}
    # Two small ones hide each other if together they are 10 in every part: 6 + 7 are.
    assert withheld_sites(counts((90, 30, 30), (20, 10, 6), (20, 10, 7)), 10, zero_is_few=False) == {"s1", "s2"}
    # 4 + 5 are 9: that total itself would be a small cell.
    rows = counts((90, 30, 30), (20, 10, 4), (20, 10, 5), (40, 12, 12))
    assert withheld_sites(rows, 10, zero_is_few=False) == {"s1", "s2", "s3"}
    assert withheld_sites(counts((60, 20, 20), (10, 10, 10)), 10, zero_is_few=False) == set()
    # A real site that tells 0 may have up to 9; in a simulation 0 is nobody.
    none = counts((60, 20, 20), (60, 20, 0), (70, 30, 30))
    assert withheld_sites(none, 10, zero_is_few=False) == set()
    assert withheld_sites(none, 10, zero_is_few=True) == {"s0", "s1"}


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 40)] * 3), min_size=1, max_size=6), st.integers(3, 12))
def test_no_small_number_can_be_worked_out(rows: list[tuple[int, int, int]], cell: int) -> None:
    """Who knows the totals and all that is shown can fill a withheld small number in with another small number."""
    table = counts(*rows)
    hidden = withheld_sites(table, cell, zero_is_few=False)
    assert bool(hidden) == any(0 < n < cell for parts in table.values() for n in parts.values())
    for name, part in itertools.product(table, PARTS):
        own, total = table[name][part], sum(one[part] for one in table.values())
        if not 0 < own < cell or total < cell:
            continue  # no small number, or the total is told as "fewer than" only
        assert name in hidden
        others = sum(table[other][part] for other in hidden) - own
        assert any(guess != own and own + others - guess >= 0 for guess in range(1, cell))
        # ... and not because the others withheld have next to nobody either: together they are no small cell.
        assert own + others >= cell


def test_small_sites_are_told_by_nobody(finished: Path, tmp_path: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    sites = [{**one, "test": 7} if one["name"] == "kenema" else one for one in result["sites"]]
    smaller = [{**one, "train": 50} if one["name"] == "bo" else one for one in sites]
    facts = card_facts(changed(finished, tmp_path, sites=smaller))
    # kenema has 7 test patients; bo is the smallest of the others, so it goes with kenema.
    assert set(facts["data"]["by_site"]) == {"freetown", "makeni"}
    assert set(facts["methods"][0]["by_site"]) == {"freetown", "makeni"}
    assert facts["data"]["rows"]["test"] == 67
    text = card_text(facts)
    assert "2 sites are withheld" in text
    worst = [line for line in text.splitlines() if "does worst at" in line]
    assert all("kenema" not in line and "bo" not in line.split("worst at")[1] for line in worst)


def test_a_total_that_is_small_is_not_told(finished: Path, tmp_path: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    sites = [{**one, "test": 2} for one in result["sites"]]
    facts = card_facts(changed(finished, tmp_path, sites=sites))
    assert facts["data"]["rows"]["test"] == "fewer than 10"
    assert facts["data"]["by_site"] == {}


def test_groups_and_privacy_are_told_where_they_are(finished: Path, tmp_path: Path) -> None:
    method = json.loads((finished / "result.json").read_text())["methods"][0]
    method["scores"]["groups"] = {
        "sex": {
            "f": {"rows": 40, "roc_auc": {"value": 0.75, "low": 0.6, "high": 0.9}},
            "x": {"rows": 3, "roc_auc": {"value": 0.111}},
        }
    }
    method["meters"]["privacy"] = {
        "level": "sample",
        "sample_epsilon": 2.5,
        "delta": 1e-5,
        "steps": {"bo": [[1.0, 8 / 60, 12]]},  # from 8/60 anybody knows bo's 60 patients
        "words": "Epsilon 2.5 at delta 1e-5 was spent.",
    }
    facts = card_facts(changed(finished, tmp_path, methods=[method]))
    text = card_text(facts)
    assert "| f | 0.750 (0.600 to 0.900) |" in text
    assert "0.111" not in text
    assert "Epsilon 2.5 at delta 1e-5 was spent" in text
    assert "No differential privacy" not in text
    assert facts["privacy"]["spent"]["fed_avg"]["sample_epsilon"] == 2.5
    assert "steps" not in facts["privacy"]["spent"]["fed_avg"]


def test_names_are_no_markup(finished: Path, tmp_path: Path) -> None:
    evil = "<script>x</script> | **b** [a](http://e.org) \n# top"
    result = json.loads((finished / "result.json").read_text())
    sites = [{**one, "name": evil} if one["name"] == "bo" else one for one in result["sites"]]
    text = card_text(card_facts(changed(finished, tmp_path, sites=sites)))
    assert "<script>" not in text
    assert "\n# top" not in text
    assert "](http" not in text
    rows = [line for line in text.splitlines() if "script" in line and line.startswith("|")]
    assert rows
    assert all(line.replace("\\|", "").count("|") == 5 for line in rows)
    for marks in itertools.product("<|*`", repeat=2):
        assert safe("".join(marks)) == "".join(f"\\{mark}" for mark in marks)


def test_a_run_without_a_model_has_no_card(finished: Path, tmp_path: Path) -> None:
    folder = changed(finished, tmp_path)
    (folder / "result.json").write_text(json.dumps({"study": "x", "kind": "tune"}))
    with pytest.raises(Refusal, match="trained no model"):
        write_card(folder)
    (folder / "result.json").unlink()
    with pytest.raises(Refusal, match=r"not finished .*result\.json"):
        write_card(folder)
    assert not (folder / "model_card.md").exists()


def test_reporting_items_are_filled_from_the_run_or_left_to_people(finished: Path) -> None:
    facts = card_facts(finished)
    items = {one["item"]: one for one in facts["reporting"]}
    assert len(items) == 52, "the numbered items of TRIPOD+AI, 1 to 27c"
    assert items["3b"] == {
        "item": "3b", "name": "Intended use, users and patients", "status": "partly", "words": "find sepsis early",
    }  # fmt: skip
    assert items["10"]["words"].startswith("240 training, 80 validation and 80 test patients")
    assert "median" in items["11"]["words"]
    assert "60 %, 20 %, 20 %" in items["12a"]["words"]
    for for_people in ("1", "5b", "8b", "14", "17", "18a", "19", "25", "27b"):
        assert items[for_people]["status"] == "for people"
        assert "words" not in items[for_people]
    text = card_text(facts)
    counts = [sum(one["status"] == status for one in items.values()) for status in ("filled", "partly", "for people")]
    assert sum(counts) == 52
    assert f"{counts[0]} are filled from the run, {counts[1]} in part, and {counts[2]} are for people." in text
    assert "For people: title (1), abstract (2)," in text


def test_the_operating_point_tells_of_no_small_number(finished: Path, tmp_path: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    point = result["methods"][0]["clinical"]["operating_point"]
    told = card_facts(finished)["methods"][0]["operating_point"]
    assert told["threshold"] == point["threshold"]
    assert told["sensitivity"] == point["all"]["sensitivity"]
    # Nine with the outcome: a share of nine with its interval tells that there are nine.
    point["all"] |= {"true_positives": 6, "false_negatives": 3, "false_positives": 30, "true_negatives": 41}
    methods = [{**result["methods"][0]}]
    told = card_facts(changed(finished, tmp_path, methods=methods))["methods"][0]["operating_point"]
    assert told["sensitivity"] == {"undefined": "too few patients"}
    assert "value" in told["ppv"]
    assert "sensitivity not defined (too few patients)" in card_text(card_facts(tmp_path))
