"""Any site replays the signed transcript of a study and gets the same bits, whatever the study and the crashes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from tests.support.adversary.transcript import entries_of, rounds_in
from tests.support.in_process import KEPT, Consortium, Died, die_at, study_of
from wardround.cli.app import app
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.transcript_record import keeps_sums
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.trust.transcript.entries import NAME, digest_of, read_entry, spoken, transcript_folder
from wardround.deploy.trust.transcript.handout import hand_out, read_source
from wardround.deploy.trust.transcript.replay import replay

SUM = [{"name": "secure_sum"}]
STOPPING: dict[str, Any] = {"stopping": {"patience": 1, "smallest": 10.0}}
"""No loss falls by 10, so training stops after the second evaluation, with the first round as the best."""
STUDIES: dict[str, dict[str, Any]] = {
    "fed_avg": {},
    "scaffold": {"algorithm": KEPT},
    "fed_opt": {"algorithm": {"name": "fed_opt", "learning_rate": 0.1, "optimizer": "adam"}},
    "secure": {"transforms": SUM},
    "stopped": STOPPING,
    "private": {"privacy": {"noise_multiplier": 1.0}},
    "drawn": {"participation": {"cohort": 2}, "transforms": [{"name": "clip", "norm": 1.0}]},
}


def replayed(path: Path) -> Any:
    return replay(read_source(path))


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    return Consortium(tmp_path)


@pytest.mark.parametrize("name", STUDIES)
def test_the_published_model_follows_bit_for_bit(consortium: Consortium, name: str) -> None:
    study = study_of(name, **STUDIES[name])
    consortium.conduct(study)
    found = replayed(consortium.run(study))
    assert found.problem == ""
    assert found.replayed == found.rounds == (2 if name == "stopped" else 3)
    entries = entries_of(transcript_folder(consortium.run(study)))
    # The hash that was computed again is that of the model in the run folder and at the site.
    published = digest_of(load_file(consortium.run(study) / "model.safetensors"))
    assert entries[-1]["model"] == published
    assert digest_of(load_file(consortium.homes["bo"].folder(consortium.id(study)) / "model.safetensors")) == published
    assert entries[-1]["best_round"] == (1 if name == "stopped" else None)
    # Every answer is told by the hash under which the site's own log says that it left.
    for site in consortium.names:
        left = {one["sha256"] for one in consortium.left(site, study)}
        listed = [one["answers"][site] for one in rounds_in(entries) if site in one["answers"]]
        assert set(listed) <= left
        own = json.loads(
            (transcript_folder(consortium.homes[site].folder(consortium.id(study))) / "findings.json").read_text()
        )
        assert (own["problems"], own["remarks"]) == ([], [])
        assert own["found"] >= len(listed) > 0


@pytest.mark.parametrize("tables", [{"algorithm": KEPT}, {"transforms": SUM}], ids=["scaffold", "secure"])
@pytest.mark.parametrize("where", ["coordinator.round.concluded", "coordinator.round.recorded"])
def test_a_crash_changes_nothing(tmp_path: Path, monkeypatch: Any, tables: dict[str, Any], where: str) -> None:
    """Dead after the entry was written and before the checkpoint: the round is done again and not written twice."""
    consortium, study = Consortium(tmp_path), study_of("crash", **tables)
    with monkeypatch.context() as patched:
        die_at(patched, where, 2)
        consortium.until_done(study)
    assert consortium.deaths == ["coordinator"]
    entries = entries_of(transcript_folder(consortium.run(study)))
    assert [one["round"] for one in rounds_in(entries)] == [1, 2, 3]
    assert replayed(consortium.run(study)).replayed == 3


def test_a_round_that_comes_out_otherwise_the_second_time_stands_there_twice(
    consortium: Consortium, monkeypatch: Any
) -> None:
    study = study_of("twice", deploy={"quorum": 2, "deadline": 1.0})
    with monkeypatch.context() as patched:
        die_at(patched, "coordinator.round.concluded", 2)
        with pytest.raises(Died):
            consortium.conduct(study)
    consortium.away = {"bo"}
    consortium.conduct(study)
    entries = entries_of(transcript_folder(consortium.run(study)))
    twice = [sorted(one["answers"]) for one in rounds_in(entries) if one["round"] == 2]
    assert twice == [["bo", "freetown", "kenema"], ["freetown", "kenema"]]
    assert replayed(consortium.run(study)).problem == ""


def test_a_torn_line_is_cut_off_and_training_goes_on(consortium: Consortium, monkeypatch: Any) -> None:
    study = study_of("torn")
    with monkeypatch.context() as patched:
        die_at(patched, "coordinator.round.concluded", 2)
        with pytest.raises(Died):
            consortium.conduct(study)
    path = transcript_folder(consortium.run(study)) / NAME
    path.write_bytes(path.read_bytes()[:-40])
    consortium.conduct(study)
    assert replayed(consortium.run(study)).replayed == 3


def test_the_sum_of_a_round_by_hand(consortium: Consortium) -> None:
    """FedAvg's model after a round is the model before plus sum of updates over sum of weights."""
    study = study_of("by-hand", rounds=1)
    consortium.conduct(study)
    folder = transcript_folder(consortium.run(study))
    (entry,) = rounds_in(entries_of(folder))
    total = load_file(folder / f"{entry['sum']}.safetensors")
    model = load_file(consortium.run(study) / "model.safetensors")
    assert set(total) == {"arrays/weight", *(f"arrays/update/{name}" for name in model)}
    # The logistic model begins at zero.
    for name, array in model.items():
        np.testing.assert_allclose(array, total[f"arrays/update/{name}"] / total["arrays/weight"], rtol=1e-6)


def test_without_sums_nothing_is_computed_and_that_is_said(consortium: Consortium) -> None:
    study = study_of("hashes", deploy={"transcript": "hashes"})
    consortium.conduct(study)
    # The first model is there, and no sum.
    assert len(list(transcript_folder(consortium.run(study)).glob("*.safetensors"))) == 1
    found = replayed(consortium.run(study))
    assert (found.problem, found.replayed) == ("", 0)
    assert any("kept hashes only" in one for one in found.unchecked)


def test_what_an_aggregator_sees_of_each_site_is_kept_only_if_the_study_says_so_and_never_handed_out(
    consortium: Consortium,
) -> None:
    median = {"aggregator": {"name": "median"}}
    silent, told = study_of("silent", **median), study_of("told", deploy={"transcript": "sums"}, **median)
    for study in (silent, told):
        consortium.conduct(study)
    assert len(list(transcript_folder(consortium.run(silent)).glob("*.safetensors"))) == 1
    found = replayed(consortium.run(told))
    assert (found.problem, found.replayed) == ("", 3)
    out = consortium.folder / "told.safetensors"
    assert "sees each site's answer" in hand_out(consortium.run(told), out)
    assert replayed(out).replayed == 0
    first = entries_of(transcript_folder(consortium.run(told)))[0]["model"]
    assert {name[:64] for name in load_file(out) if name[64:65] == ":"} == {first}


def test_a_sum_of_two_is_not_handed_out(tmp_path: Path) -> None:
    """Whoever knows the own answer would know the other."""
    two, study = Consortium(tmp_path, ("bo", "kenema")), study_of("two")
    two.conduct(study)
    assert replayed(two.run(study)).replayed == 3
    out = tmp_path / "two.safetensors"
    assert "fewer than 3 answers" in hand_out(two.run(study), out)
    assert replayed(out).replayed == 0


def test_small_sums_are_kept_by_default_and_large_ones_are_not() -> None:
    study = study_of("size", rounds=64)
    assert keeps_sums(study, 1 << 20, linear=True)
    assert not keeps_sums(study, (1 << 20) + 1, linear=True)
    assert not keeps_sums(study, 1, linear=False)
    assert keeps_sums(study_of("more", deploy={"transcript": "sums"}), 1 << 40, linear=True)


def test_the_commands(consortium: Consortium) -> None:
    study = study_of("commands")
    consortium.conduct(study)
    out, bo = consortium.folder / "out.safetensors", str(consortium.homes["bo"].path)
    run = CliRunner().invoke
    made = run(app, ["coordinator", "transcript", "commands", "--out", str(out), "--home", str(consortium.home.path)])
    assert made.exit_code == 0, made.output
    shown = run(app, ["audit", "replay", str(out), "--home", bo])
    assert shown.exit_code == 0, shown.output
    for words in (
        "follows from the transcript, bit for bit",
        "countersigned by bo: they were shown the same transcript",
        "countersigned in the name of freetown, kenema, with keys that are not pinned here",
        "6 answers of bo are listed",
        "not checked: that a sum is the sum of the answers",
    ):
        assert words in shown.output
    facts = json.loads(run(app, ["audit", "replay", str(consortium.run(study)), "--json"]).output)
    assert (facts["problem"], facts["replayed"], facts["rounds"]) == ("", 3, 3)
    assert facts["fingerprint"] in shown.output
    diary = run(app, ["audit", "show", str(consortium.homes["bo"].audit_path)])
    assert f"The coordinator's transcript of {study_id(study)} came: it matches this log." in diary.output
    # At the site's own folder there are no sums, which is said.
    own = run(app, ["audit", "replay", str(consortium.homes["bo"].folder(study_id(study))), "--home", bo])
    assert own.exit_code == 0
    assert "could not be computed again" in own.output


@pytest.mark.slow
def test_another_process_gets_the_same_bits(consortium: Consortium) -> None:
    """Nothing that this process compiled or remembers is there: only the file, the site's home and the program.

    It uses no instruction that a processor of 2008 lacks, and compiles with all optimizations, unlike the tests: a
    normal number, from which this model begins, comes out with other last bits there, and so would a compiled server's
    step of Adam.
    """
    study = study_of("elsewhere", transforms=SUM, model={"name": "mlp", "hidden": [8]}, algorithm={"name": "fed_opt"})
    consortium.conduct(study)
    out = consortium.folder / "out.safetensors"
    hand_out(consortium.run(study), out)
    shutil.rmtree(consortium.home.path)
    home = str(consortium.homes["kenema"].path)
    start = "from wardround.cli.app import main; main()"
    command = [sys.executable, "-c", start, "audit", "replay", str(out), "--home", home, "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment["XLA_FLAGS"] = "--xla_cpu_max_isa=SSE4_2"
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    facts = json.loads(done.stdout)
    assert (facts["problem"], facts["replayed"]) == ("", 3)


def test_bad_input_is_one_paragraph(consortium: Consortium) -> None:
    with pytest.raises(Refusal, match="There is no transcript"):
        read_source(consortium.folder)
    file = consortium.folder / "noise"
    file.write_bytes(b"\x00" * 100)
    with pytest.raises(Refusal, match="This is not a transcript"):
        read_source(file)
    for wrong in ({"kind": "round"}, {"kind": "other"}, {}, {"kind": "end", "rounds": "3"}):
        with pytest.raises(ValueError, match="malformed"):
            read_entry(wrong)


def test_words_by_hand() -> None:
    """Proquints (Wilkerson 2009): its author's example is 127.0.0.1, lusab-babad; 0x1234 is d, a, m (8), u, h (4)."""
    assert spoken("7f0000011234ffff" + "0" * 48).startswith("lusab-babad-damuh-zuzuz-babab")
    assert len(spoken("a" * 64).split("-")) == 8


def test_a_hash_tells_every_bit_name_and_shape() -> None:
    one = {"a": np.float32([1, 2]), "b": np.float32([3])}
    assert digest_of(one) == digest_of({"b": np.float32([3]), "a": np.float32([1, 2])})
    others = [
        {"a": np.float32([1, 2]), "b": np.nextafter(np.float32([3]), np.float32(4))},
        {"a": np.float32([1]), "b": np.float32([2, 3])},
        {"a": np.float32([1, 2]), "c": np.float32([3])},
        {"a": np.float32([[1, 2]]), "b": np.float32([3])},
        {"a": np.float32([1, 2]), "b": np.float32([3]).view(np.int32)},
    ]
    assert len({digest_of(each) for each in (one, *others)}) == 6
