"""A model retrained without a site is the model of a run in which the site never took part."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.support import tiny_study as tiny
from wardround.core.chain import identity
from wardround.core.errors import Refusal
from wardround.data.datasets.heart_disease import heart_disease
from wardround.data.folder import data_folder
from wardround.deploy.coordinator.queue import queue_without, queued_studies
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.protocol.study_id import study_id
from wardround.engine.participation import pattern
from wardround.engine.split_round import OwnRows, combine_answers, initial_progress, message_of_round, site_round
from wardround.runs.folder import RunFolder
from wardround.study import assemble
from wardround.study.file import Study, parse_study, read_study
from wardround.study.methods import own_method
from wardround.workflows.retrain import (
    manifest_of,
    retrain,
    spans,
    study_without,
    with_places,
    without_rows,
)
from wardround.workflows.run import run

LAST, MIDDLE = "makeni", "freetown"


def trained(folder: Path, frame: pd.DataFrame | None = None, **tables: Any) -> Path:
    """A finished run of the tiny study in folder/run."""
    folder.mkdir(parents=True, exist_ok=True)
    study = read_study(tiny.write_study(folder, frame, **tables))
    run(study, RunFolder.create(folder / "run", resume=False), [own_method(study)], kind="run")
    return folder / "run"


def without(folder: Path, *sites: str, out: str = "again") -> Path:
    retrain(folder, sites, folder.parent / out)
    return folder.parent / out


def model(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def same_bits(one: Path, other: Path) -> bool:
    a, b = model(one), model(other)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def close(one: Path, other: Path, tolerance: float) -> bool:
    a, b = model(one), model(other)
    return all(np.allclose(a[name], b[name], atol=tolerance, rtol=0) for name in a)


def changed(site: str) -> pd.DataFrame:
    """The patients, but for those of one site, which are others."""
    frame = tiny.patients()
    here = frame["hospital"] == site
    frame.loc[here, ["age", "pulse", "lactate"]] = np.random.default_rng(9).normal(5, 3, (int(here.sum()), 3)).round(3)
    frame.loc[here, "outcome"] = 1 - frame.loc[here, "outcome"]
    return frame


def test_the_last_site_left_out_is_a_study_without_it(tmp_path: Path) -> None:
    """Without the last site all others have the number they would have anyway: nothing at all may differ."""
    again = without(trained(tmp_path / "all"), LAST)
    frame = tiny.patients()
    never = trained(tmp_path / "never", frame[frame["hospital"] != LAST])
    assert close(again, never, 1e-7)
    figures = [json.loads((folder / "result.json").read_text())["methods"][0]["scores"] for folder in (again, never)]
    for site in set(tiny.HOSPITALS) - {LAST}:
        for name, told in figures[1]["sites"][site].items():
            assert figures[0]["sites"][site][name]["value"] == pytest.approx(told["value"], abs=1e-6)


def test_of_any_site_full_batches_agree_with_a_study_without_it(tmp_path: Path) -> None:
    """Without random orders the sites' numbers do not matter, so an ordinary run on the other rows is the truth."""
    again = without(trained(tmp_path / "all", algorithm={"batch_size": 0}), MIDDLE)
    frame = tiny.patients()
    never = trained(tmp_path / "never", frame[frame["hospital"] != MIDDLE], algorithm={"batch_size": 0})
    assert close(again, never, 1e-6)


@pytest.mark.skipif(not (data_folder() / "uci_heart_disease").is_dir(), reason="heart_disease needs WARDROUND_DATA")
def test_on_real_patients(tmp_path: Path) -> None:
    """Four real hospitals: schema, stand-ins, scales and model are those of the three others."""
    table = heart_disease()
    frame = pd.concat([rows.assign(hospital=name) for name, rows in table.sites.items()])
    words = {"data": {"target": table.target}, "algorithm": {"batch_size": 0}, "study": {"rounds": 3}}
    again = without(trained(tmp_path / "all", frame, **words), "hungarian")
    never = trained(tmp_path / "never", frame[frame["hospital"] != "hungarian"], **words)
    assert close(again, never, 1e-6)
    results = [json.loads((folder / "result.json").read_text()) for folder in (again, never)]
    assert results[0]["task"] == results[1]["task"]
    assert [one for one in results[0]["sites"] if one["name"] != "hungarian"] == results[1]["sites"]


def test_the_others_keep_their_numbers(tmp_path: Path) -> None:
    """Against the two halves of a round computed site by site with the old numbers, in another program."""
    original = trained(tmp_path / "all")
    again = without(original, MIDDLE)
    study = read_study(tmp_path / "all" / "study.toml")
    frame = tiny.patients()
    frame[frame["hospital"] != MIDDLE].to_csv(tmp_path / "all" / "patients.csv", index=False)
    federation = assemble.load_setting(study, study.study.seed).federation
    numbers = [tiny.HOSPITALS.index(site) for site in federation.sites]
    assert numbers == [0, 2, 3]

    def by_hand(numbers: list[int]) -> dict[str, np.ndarray]:
        algorithm = assemble.build(study, own_method(study), federation.task, tiny.HOSPITALS)
        params = assemble.model_of(study, federation.task).init(jax.random.key(study.study.seed))
        first, count = federation.part("train")
        row = tuple(jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in (federation.x, federation.y))
        progress = initial_progress(algorithm, identity(), params, 4, row)
        for number in range(1, tiny.ROUNDS + 1):
            sent = message_of_round(algorithm, identity(), progress, seed=study.study.seed, number=number)
            answers = {}
            for place, site in enumerate(numbers):
                rows = slice(int(first[place]), int(first[place] + count[place]))
                own = OwnRows(federation.x[rows], federation.y[rows], site)
                answers[site], _, _ = site_round(
                    algorithm, identity(), sent, (), own, seed=study.study.seed, number=number
                )
            progress = combine_answers(algorithm, identity(), progress, answers, 3, 4)
        return jax.device_get(algorithm.params(progress.server))

    ours = model(again)
    for name, array in by_hand(numbers).items():
        np.testing.assert_allclose(ours[name], array, atol=1e-6)
    # With other numbers it is another model: the agreement above is no accident.
    shifted = by_hand([0, 1, 2])
    assert any(np.abs(ours[name] - shifted[name]).max() > 1e-4 for name in ours)


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"algorithm": {"name": "scaffold", "batch_size": 8}},
        {"stopping": {"patience": 1}, "evaluation": {"resamples": 20, "every": 1}},
        {"data": {"preparation": {"impute": "median", "scale": "standard"}}, "participation": {"cohort": 3}},
    ],
    ids=["fed_avg", "scaffold", "stopping", "drawn"],
)
def test_nothing_of_the_sites_rows_is_left(tmp_path: Path, tables: dict[str, Any]) -> None:
    """Whatever the rows of the site were, the retrained model has the same bits: no attack can find them in it."""
    one = trained(tmp_path / "one", **tables)
    other = trained(tmp_path / "other", changed(MIDDLE), **tables)
    assert not close(one, other, 1e-3), "the rows of the site did count"
    assert same_bits(without(one, MIDDLE), without(other, MIDDLE))
    results = [json.loads((run.parent / "again" / "result.json").read_text()) for run in (one, other)]
    for result in results:
        for method in result["methods"]:
            for key in ("seconds", "compile_seconds", "meters"):
                method.pop(key)
    assert results[0] == results[1]


def test_rows_that_are_gone_already_are_not_missed(tmp_path: Path) -> None:
    original = trained(tmp_path / "all")
    before = without(original, MIDDLE)
    frame = tiny.patients()
    frame[frame["hospital"] != MIDDLE].to_csv(tmp_path / "all" / "patients.csv", index=False)
    assert same_bits(before, without(original, MIDDLE, out="later"))


def test_who_took_part_is_recorded(tmp_path: Path) -> None:
    original = trained(tmp_path / "all", study={"rounds": 8}, participation={"cohort": 2})
    again = without(original, LAST)
    drawn, kept = ({one["round"]: set(one["sites"]) for one in tiny.recorded(folder)} for folder in (original, again))
    assert any(LAST in sites for sites in drawn.values())
    assert kept == {number: sites - {LAST} for number, sites in drawn.items()}
    manifest = json.loads((again / "manifest.json").read_text())
    assert manifest["without"] == [LAST]
    assert manifest["retrained_from"] == json.loads((original / "manifest.json").read_text())["study_hash"]
    result = json.loads((again / "result.json").read_text())
    assert result["sites"][3] == {"name": LAST, "train": 0, "validation": 0, "test": 0, "prevalence": None}
    assert any("Trained without makeni" in note for note in result["notes"])


def test_a_second_withdrawal_keeps_the_first(tmp_path: Path) -> None:
    original = trained(tmp_path / "all")
    twice = without(without(original, MIDDLE), LAST, out="twice")
    assert manifest_of(twice)["without"] == [MIDDLE, LAST]
    assert same_bits(twice, without(original, LAST, MIDDLE, out="both"))


def test_sites_of_a_partition_keep_their_rows(tmp_path: Path) -> None:
    pool = {"data": {"site": None, "partition": {"name": "iid", "sites": 4}}}
    original = trained(tmp_path / "all", **pool)
    again = without(original, "site-2")
    before, after = (json.loads((folder / "result.json").read_text())["sites"] for folder in (original, again))
    assert [one for one in after if one["name"] != "site-2"] == [one for one in before if one["name"] != "site-2"]
    assert after[1]["train"] == 0
    assert before[1]["train"] > 0


def test_image_sites_are_emptied_in_place(make_federation) -> None:
    whole = make_federation([6, 3, 9])
    part = without_rows(whole, [1])
    assert part.sites == whole.sites
    assert part.counts.tolist() == [whole.counts[0].tolist(), [0, 0, 0], whole.counts[2].tolist()]
    assert len(part.x) == len(whole.x) - int(whole.counts[1].sum())
    for piece in ("train", "validation", "test"):
        for site in (0, 2):
            (a, n), (b, m) = ((int(c[site]) for c in one.part(piece)) for one in (whole, part))
            assert n == m
            np.testing.assert_array_equal(whole.x[a : a + n], part.x[b : b + m])
    back = with_places(make_federation([6, 3]), ["none", "site-0", "site-1", "gone"])
    assert back.counts[0].tolist() == back.counts[3].tolist() == [0, 0, 0]
    assert back.first.tolist() == [0, 0, int(back.counts[1].sum()), len(back.x)]


def test_spans_are_what_a_study_file_says() -> None:
    for rounds in ([1], [], [1, 2, 3], [2, 4, 5, 9, 10]):
        cohort = pattern(["a", "b"], {"b": spans(rounds, 10)}, 10)
        assert [number for number in range(1, 11) if 1 in cohort.cohort(number)] == rounds


# ---- refusals ----


def refused(folder: Path, *sites: str) -> str:
    with pytest.raises(Refusal) as caught:
        without(folder, *sites, out="refused")
    assert not (folder.parent / "refused").exists(), "a refusal leaves nothing behind"
    return str(caught.value)


def test_what_cannot_be_exact_is_refused(tmp_path: Path) -> None:
    original = trained(tmp_path / "all")
    assert "did you mean 'makeni'" in refused(original, "makany")
    assert "no site would be left" in refused(original, *tiny.HOSPITALS).lower()
    changed("kenema").to_csv(tmp_path / "all" / "patients.csv", index=False)
    assert "data have changed" in refused(original, MIDDLE)
    frame = tiny.patients()
    frame[frame["hospital"] != "kenema"].to_csv(tmp_path / "all" / "patients.csv", index=False)
    assert "data have changed" in refused(original, MIDDLE)
    manifest = json.loads((original / "manifest.json").read_text())
    (original / "manifest.json").write_text(json.dumps({**manifest, "kind": "tune"}))
    assert "trains no model" in refused(original, MIDDLE)


def study_of(**tables: Any) -> Study:
    words = {"study": {"name": "s", "rounds": 3}, "data": {"source": "csv", "target": "outcome"}, **tables}
    return parse_study(words, where="test")


def test_a_site_that_asks_or_is_alone_cannot_be_left_out() -> None:
    with pytest.raises(Refusal, match="trained for a"):
        study_without(study_of(study={"name": "s", "rounds": 3, "user": "a"}), ["a"], ["a", "b"])
    alone = study_of(participation={"present": {"b": "2-"}})
    with pytest.raises(Refusal, match="n round 1 nobody but a took part"):
        study_without(alone, ["a"], ["a", "b"])
    partners = study_of(
        study={"name": "s", "rounds": 3, "user": "b"}, partners={"by_hand": ["a", "c"], "limits": {"a": 0.5}}
    )
    left = study_without(partners, ["a"], ["a", "b", "c"]).partners
    assert left is not None
    assert (left.by_hand, left.withdrawn, left.limits) == (["c"], ["a"], {})


# ---- over real sites ----


def deployed(folder: Path, study: Study, sites: list[str]) -> Path:
    """What a coordinator's folder holds of a finished study, as far as retraining looks at it."""
    home = folder / "hub"
    (home / "studies" / study_id(study) / "run").mkdir(parents=True)
    (home / "coordinator.toml").write_text('consortium = "c"\nname = "hub"\n')
    at = home / "studies" / study_id(study)
    (at / "study.json").write_text(json.dumps({"study": study.model_dump(mode="json"), "submitter": "anna"}))
    manifest = {"kind": "deployed", "study": study.model_dump(mode="json"), "study_hash": "0", "sites": sites}
    (at / "run" / "manifest.json").write_text(json.dumps(manifest))
    return at / "run"


def test_a_deployed_run_is_queued_anew(tmp_path: Path) -> None:
    asked = study_of(deploy={"quorum": 3}, participation={"present": {"b": "2-"}})
    at = deployed(tmp_path, asked, ["a", "b", "c"])
    name = queue_without(at, ["b"])
    home = CoordinatorHome(tmp_path / "hub")
    assert queued_studies(home) == [name]
    content = json.loads((home.folder(name) / "study.json").read_text())
    assert content["submitter"] == "anna"
    new = parse_study(content["study"], where="test")
    assert study_id(new) == name != study_id(asked)
    assert new.deploy.sites == ["a", "c"]
    assert new.deploy.quorum == 2
    assert new.participation.present is None
    assert (new.study, new.data) == (asked.study, asked.data)
    with pytest.raises(Refusal, match="no site called 'd'"):
        queue_without(at, ["d"])


def test_a_deployed_run_elsewhere_is_refused(tmp_path: Path) -> None:
    at = deployed(tmp_path, study_of(), ["a", "b"])
    (tmp_path / "hub" / "coordinator.toml").unlink()
    with pytest.raises(Refusal, match="coordinator's folder"):
        queue_without(at, ["a"])
