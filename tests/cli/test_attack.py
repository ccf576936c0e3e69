"""`wardround attack`: the attacks succeed on a study without protection, and the command tells what protection does."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support import tiny_study as tiny
from wardround.study import assemble
from wardround.study.file import read_study
from wardround.study.methods import own_method
from wardround.workflows.attack.attack import from_updates, variants
from wardround.workflows.attack.first_round import split_into_small_sites
from wardround.workflows.training_plan import plan_training


def by_heart(folder: Path, **tables) -> Path:
    """A study whose labels mean nothing and whose network is large enough to learn every patient by heart."""
    frame = tiny.patients(rows=24)
    outcome = np.random.default_rng(0).integers(0, 2, len(frame))
    whole = {
        "study": {"rounds": 40},
        "model": {"name": "mlp", "hidden": [64]},
        "algorithm": {"name": "fed_avg", "batch_size": 12, "learning_rate": 0.5, "local_epochs": 3},
    }
    return tiny.write_study(folder, frame.assign(outcome=outcome), **whole, **tables)


def with_secure_sum(path: Path) -> Path:
    path.write_text(path.read_text() + '[[transforms]]\nname = "secure_sum"\n')
    return path


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """One attack with everything, read from the folder it wrote."""
    folder = tmp_path_factory.mktemp("attack")
    study = with_secure_sum(by_heart(folder))
    with pytest.raises(SystemExit) as left:
        tiny.main(["attack", str(study), "--shadows", "6", "--out", str(folder / "out"), "--json"])
    assert not left.value.code
    return json.loads((folder / "out" / "attack.json").read_text())


@pytest.mark.slow
def test_both_variants_are_attacked_and_told(told):
    assert told["kind"] == "attack"
    assert [(one["name"], one["protections"]) for one in told["variants"]] == [
        ("without protection", []),
        ("as the study is", ["secure_sum"]),
    ]
    assert told["notes"][0] == (
        "A secure sum hides each site's update, not what the common model reveals: for that, add [privacy]."
    )


@pytest.mark.slow
def test_without_protection_a_single_patient_is_rebuilt_and_read(told):
    one = told["variants"][0]["one_patient"]
    assert one["single_updates_seen"]
    assert (one["rows"]["rebuilt"], one["rows"]["rows"], one["rows"]["by"]) == (4, 4, "division")
    assert one["rows"]["nearest"] < 1e-3
    assert one["labels"]["right"] == 1.0


def test_under_the_secure_sum_nobody_is_rebuilt_from_a_linear_model(tmp_path):
    study = read_study(with_secure_sum(tiny.write_study(tmp_path)))
    plan = plan_training(study, assemble.load_setting(study, 1), own_method(study))
    bare, whole = (from_updates(one.plan, split_into_small_sites(plan.federation, 1)) for one in variants(study, plan))
    assert bare["rows"]["rebuilt"] == 4
    one = whole
    assert not one["single_updates_seen"]
    # With two units a sum of four rows is a mixture. (A wide hidden layer may still tell some: see the next test.)
    assert one["rows"]["rebuilt"] == 0
    # One answer for all sites: whichever label it reads, it is right for those that have it, no more than a guess.
    assert one["labels"]["right"] <= one["labels"]["guess_right"]


def test_a_wide_hidden_layer_tells_of_single_patients_even_in_a_sum(tmp_path):
    """The quick part of the next test: one patient a site, and one round."""
    study = read_study(with_secure_sum(by_heart(tmp_path)))
    plan = plan_training(study, assemble.load_setting(study, 1), own_method(study))
    _, whole = variants(study, plan)
    found = from_updates(whole.plan, split_into_small_sites(plan.federation, 1))
    assert not found["single_updates_seen"]
    assert 0 < found["rows"]["rebuilt"] <= found["rows"]["rows"] == 4


def test_a_wide_network_betrays_some_of_few_patients_even_in_a_sum(told):
    """Units that only one of the four patients moves hold this patient; whose it is, the sum does not tell."""
    one = told["variants"][1]["one_patient"]
    assert not one["single_updates_seen"]
    assert one["rows"]["rebuilt"] > 0
    few = told["variants"][1]["few_patients"]
    assert f"with one patient per site, {one['rows']['rebuilt']} of 4 could be reconstructed" in told["notes"][1]
    # More patients hide each other, until nobody can be rebuilt: from then on it is not tried any further.
    assert [step["patients"] for step in few] == [2, 4, 8, 16, 32][: len(few)]
    assert all(step["rebuilt"] for step in few[:-1])
    assert few[-1]["rebuilt"] == 0
    assert f"with {few[-1]['patients']} per site, none" in told["notes"][1]
    # With all patients of the study nobody can be told from the sum.
    assert told["variants"][1]["updates"]["rows"]["rebuilt"] == 0


@pytest.mark.slow
def test_members_of_a_model_that_learned_by_heart_are_told(told):
    for variant in told["variants"]:  # a secure sum does not change the model
        found = variant["membership"]
        assert found["yeom"]["advantage"] > 0.3
        assert found["lira"]["advantage"] > max(0.2, 5 * found["lira"]["error"])
        assert found["lira"]["auc"] > 0.6
        assert "bound" not in found


def test_as_a_table_and_with_notes(tmp_path, capsys):
    study = tiny.write_study(tmp_path, study={"rounds": 1})
    said = tiny.call(capsys, "attack", study, "--shadows", "4")
    assert said.code == 0
    assert "without protection" in said.out
    assert "as the study is" not in said.out
    assert "shadow" in said.out
    assert "The study has no protection" in said.out


def test_what_cannot_be_tried_says_why(tmp_path, capsys):
    study = tiny.write_study(tmp_path, algorithm={"name": "local"}, study={"rounds": 1})
    found = tiny.call(capsys, "attack", study, "--json").json["variants"][0]
    assert found["updates"] == found["one_patient"] == {"not_tried": "no site sends anything"}
    assert "model of its own" in found["membership"]["not_tried"]
    said = tiny.call(capsys, "attack", study)
    assert "not tried" in said.out


def test_refusals(tmp_path, capsys):
    study = tiny.write_study(tmp_path)
    said = tiny.call(capsys, "attack", study, "--shadows", "2")
    assert (said.code, "at least 4" in said.err) == (2, True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    said = tiny.call(capsys, "attack", study, "--out", tmp_path / "full")
    assert (said.code, "not empty" in said.err) == (2, True)
    assert tiny.call(capsys, "attack", tmp_path / "none.toml").code == 2
