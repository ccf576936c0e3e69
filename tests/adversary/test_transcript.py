"""A coordinator that lies about how a model came about is found by a replay, or by the site that it lied to.

It holds its own key, so every forged transcript here is chained and signed as a real one is.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from tests.support.adversary.forgeries import (
    STUDY,
    ask_with_another_seed,
    begin_with_another_model,
    change_the_preparation,
    claim_another_state,
    cut_the_end,
    drop_a_round,
    invent_an_answer,
    judge_another_model,
    leave_a_site_out,
    never_ask_a_site,
    problem_of,
    publish_an_earlier_model,
    publish_another_model,
    say_that_bo_was_late,
    say_that_kenema_was_late,
    send_another_model,
    stop_early,
    swap_sums,
    swap_the_study,
)
from tests.support.adversary.transcript import Entries, LyingCoordinator, entries_of, forge, rounds_in
from tests.support.in_process import study_of
from wardround.cli.app import app
from wardround.core.contracts import Message
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.transcript_check import check_own
from wardround.deploy.trust.certificates import new_key, read_certificate
from wardround.deploy.trust.transcript.entries import (
    NAME,
    TranscriptSigner,
    digest_of,
    load_transcript_head,
    sign_transcript,
    spoken,
)
from wardround.deploy.trust.transcript.handout import hand_out, read_source
from wardround.deploy.trust.transcript.replay import replay
from wardround.deploy.trust.transcript.signatures import check_signatures


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> LyingCoordinator:
    coordinator = LyingCoordinator(tmp_path_factory.mktemp("honest"))
    coordinator.conduct(STUDY)
    return coordinator


@pytest.fixture
def copied(honest: LyingCoordinator, tmp_path: Path) -> Path:
    """The run folder of a study that went well, to be forged."""
    shutil.copytree(honest.run(STUDY), tmp_path / "run")
    assert replay(read_source(tmp_path / "run")).problem == ""
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (publish_another_model, "the published model does not follow from the rounds"),
        (publish_an_earlier_model, "the published state is not the one after round 3"),
        (claim_another_state, "round 3: the model does not follow from the sum"),
        (send_another_model, "round 2: the sites were not sent the model that the round before gave"),
        (begin_with_another_model, "the model before the first round is not the one of the study's seed"),
        (ask_with_another_seed, "another method than the study's"),
        (swap_the_study, "it calls itself a transcript of"),
        (leave_a_site_out, "round 2: the sites that answered or are left out are not those that were asked"),
        (never_ask_a_site, "round 2: other sites were asked than the study says"),
        (drop_a_round, "round 3 stands after round 1"),
        (stop_early, "training ended after round 2 of 3 without a reason"),
        (swap_sums, "round 1: the model does not follow from the sum"),
        (cut_the_end, "no signed end"),
        (judge_another_model, "the sites judged another model"),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_a_signed_lie_does_not_follow(
    honest: LyingCoordinator, copied: Path, lie: Callable[[Entries], Any], words: str
) -> None:
    forge(honest.home, copied / "transcript", lie)
    assert words in problem_of(copied)
    # The signature is the coordinator's own, so it is the content that gives the lie away.
    signed = replace(read_source(copied), witnesses={})
    assert check_signatures(signed, read_certificate(honest.homes["bo"].authority_path)).problem == ""


def test_another_first_model_is_found_though_it_comes_along(honest: LyingCoordinator, copied: Path) -> None:
    """A coordinator that begins from a model of its own choice hands it out too; the seed gives another."""
    chosen = {name: array + np.float32(0.5) for name, array in load_file(copied / "model.safetensors").items()}
    save_file(chosen, copied / "transcript" / f"{digest_of(chosen)}.safetensors")

    def begin_with_it(entries: Entries) -> None:
        entries[0]["model"] = digest_of(chosen)

    forge(honest.home, copied / "transcript", begin_with_it)
    assert "the model before the first round is not the one of the study's seed" in problem_of(copied)


def test_a_changed_sum_is_found(copied: Path) -> None:
    digest = rounds_in(entries_of(copied / "transcript"))[0]["sum"]
    path = copied / "transcript" / f"{digest}.safetensors"
    arrays = load_file(path)
    save_file({name: np.asarray(np.nextafter(array, np.float32(9))) for name, array in arrays.items()}, path)
    assert "the sum that came with the transcript is not the one named in it" in problem_of(copied)


def test_another_published_model_beside_a_true_transcript_is_found(copied: Path) -> None:
    path = copied / "model.safetensors"
    save_file({name: array + np.float32(1e-3) for name, array in load_file(path).items()}, path)
    assert "is not the one that it says was published" in problem_of(copied)


@pytest.mark.parametrize("place", range(0, 100, 9))
def test_any_byte_that_somebody_else_changes_is_found(copied: Path, place: int) -> None:
    path = copied / "transcript" / NAME
    content = bytearray(path.read_bytes())
    content[len(content) * place // 100] ^= 1
    path.write_bytes(bytes(content))
    assert problem_of(copied) != ""


def test_a_stranger_s_signature_is_found(honest: LyingCoordinator, copied: Path, tmp_path: Path) -> None:
    head = copied / "transcript" / f"{NAME}.head"
    words = json.loads(head.read_bytes())
    stranger = new_key(tmp_path / "stranger.pem")
    forged = sign_transcript(words["entries"], words["hash"], TranscriptSigner("coordinator", stranger, ""))
    head.write_bytes(forged.to_bytes() + b"\n")
    authority = read_certificate(honest.homes["bo"].authority_path)
    assert "the signature under the transcript" in check_signatures(read_source(copied), authority).problem


# ---- what a site finds, when the model comes ----


def own_findings(coordinator: LyingCoordinator, site: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((coordinator.sites_own(site, STUDY) / "findings.json").read_text())
    return found


def test_another_model_in_finish_is_told_to_the_administrator_and_kept(tmp_path: Path) -> None:
    coordinator = LyingCoordinator(tmp_path)

    def lie(site: str, topic: str, header: Any, message: Message) -> Message:
        if (site, topic) != ("bo", "finish"):
            return message
        params = {name: array + np.float32(1) for name, array in message.arrays["params"].items()}
        return Message({**message.arrays, "params": params})

    coordinator.lie = lie
    coordinator.conduct(STUDY)
    assert own_findings(coordinator, "bo")["problems"] == [
        "the model that this site was given is not the published one"
    ]
    assert any("not the published one" in why for why in coordinator.alarms["bo"])
    assert coordinator.alarms["freetown"] == []
    # It is kept, and not countersigned.
    assert (coordinator.homes["bo"].folder(study_id(STUDY)) / "model.safetensors").exists()
    assert sorted(json.loads((coordinator.transcript(STUDY) / "countersigned.json").read_text())) == [
        "freetown",
        "kenema",
    ]
    # And the log says so for good.
    assert "not the published one" in coordinator.homes["bo"].audit_path.read_text()


def test_a_model_made_for_one_site_is_found_by_it(tmp_path: Path) -> None:
    """A coordinator wants one site's answer to a model of its own choice, and names the others' in the transcript."""
    coordinator = LyingCoordinator(tmp_path)

    def lie(site: str, topic: str, header: Any, message: Message) -> Message:
        if (site, topic, header["round"]) != ("bo", "round", 2):
            return message
        params = {name: array + np.float32(1) for name, array in message.arrays["params"].items()}
        return Message({**message.arrays, "params": params})

    coordinator.lie = lie
    coordinator.conduct(STUDY)
    assert own_findings(coordinator, "bo")["problems"] == [
        "round 2: this site was sent another model than the one that it names"
    ]
    assert own_findings(coordinator, "kenema")["problems"] == []
    # The coordinator that writes down what it really sent to that site is found by everybody's replay.
    forge(coordinator.home, coordinator.transcript(STUDY), send_another_model)
    assert "round 2: the sites were not sent" in problem_of(coordinator.run(STUDY))


def lie_in_finish(
    coordinator: LyingCoordinator, site: str, change: Callable[[Entries], Any], folder: Path
) -> Callable[..., Message]:
    """Show one site another transcript than the others."""

    def lie(to: str, topic: str, header: Any, message: Message) -> Message:
        if (to, topic) != (site, "finish"):
            return message
        shutil.copytree(coordinator.transcript(STUDY), folder, dirs_exist_ok=True)
        forge(coordinator.home, folder, change)
        return Message({**message.arrays, "transcript": coordinator.as_message(folder)})

    return lie


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (invent_an_answer, "problems", "round 2: it lists an answer of this site that never left here (abababababab)"),
        (never_ask_a_site, "problems", "round 2: an answer of this site left here and is not listed at all"),
        (
            say_that_bo_was_late,
            "remarks",
            "round 2: an answer of this site left here, and the coordinator says that it was not used (it was not "
            "connected)",
        ),
        (change_the_preparation, "problems", "its preparation is not the one that this site was told"),
        (publish_another_model, "problems", "the model that this site was given is not the published one"),
        (cut_the_end, "problems", "it is not whole: no end"),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_a_site_finds_what_it_knows_better(
    tmp_path: Path, change: Callable[[Entries], Any], kind: str, words: str
) -> None:
    coordinator = LyingCoordinator(tmp_path)
    coordinator.lie = lie_in_finish(coordinator, "bo", change, tmp_path / "forged")
    coordinator.conduct(STUDY)
    assert own_findings(coordinator, "bo")[kind] == [words]
    assert any(words in why for why in coordinator.alarms["bo"])


def test_two_sites_that_are_shown_two_transcripts_find_out(tmp_path: Path) -> None:
    """What bo is shown says that kenema was late: bo cannot know better, but bo's signature is under another end."""
    coordinator = LyingCoordinator(tmp_path)
    coordinator.lie = lie_in_finish(coordinator, "bo", say_that_kenema_was_late, tmp_path / "forged")
    coordinator.conduct(STUDY)
    assert own_findings(coordinator, "bo")["problems"] == []
    out = tmp_path / "out.safetensors"
    hand_out(coordinator.run(STUDY), out)
    ends = {
        site: spoken(load_transcript_head(coordinator.sites_own(site, STUDY) / NAME).hash)  # type: ignore[union-attr]
        for site in coordinator.names
    }
    assert ends["freetown"] == ends["kenema"] != ends["bo"]
    # kenema replays the file, which has bo's signature with it.
    run = CliRunner().invoke
    kenema = run(app, ["audit", "replay", str(out), "--home", str(coordinator.homes["kenema"].path)])
    assert kenema.exit_code == 2
    assert f"bo has countersigned another transcript, which ends with {ends['bo']}" in kenema.output
    # bo does, and has another one.
    bo = run(app, ["audit", "replay", str(out), "--home", str(coordinator.homes["bo"].path)])
    assert bo.exit_code == 2
    assert "bo was given another transcript with the model" in bo.output
    # A coordinator that keeps bo's signature back is not believed either: the words are to be compared.
    (coordinator.transcript(STUDY) / "countersigned.json").write_text("{}")
    later = tmp_path / "later.safetensors"
    hand_out(coordinator.run(STUDY), later)
    kenema = run(app, ["audit", "replay", str(later), "--home", str(coordinator.homes["kenema"].path)])
    assert kenema.exit_code == 0
    assert "no countersignature of bo, freetown, kenema" in kenema.output
    assert ends["kenema"] in kenema.output


def test_history_that_is_rewritten_after_the_end_is_found_by_every_site(tmp_path: Path) -> None:
    coordinator = LyingCoordinator(tmp_path)
    coordinator.conduct(STUDY)
    forge(coordinator.home, coordinator.transcript(STUDY), say_that_kenema_was_late)
    out = tmp_path / "out.safetensors"
    hand_out(coordinator.run(STUDY), out)
    for site in coordinator.names:
        told = CliRunner().invoke(app, ["audit", "replay", str(out), "--home", str(coordinator.homes[site].path)])
        assert told.exit_code == 2
        assert "countersigned another transcript" in told.output


def test_a_coordinator_that_sends_none_is_remarked(tmp_path: Path) -> None:
    coordinator = LyingCoordinator(tmp_path)
    coordinator.lie = lambda site, topic, header, message: (
        Message({name: one for name, one in message.arrays.items() if name != "transcript"})
        if topic == "finish"
        else message
    )
    coordinator.conduct(STUDY)
    assert any("sent none" in why for why in coordinator.alarms["bo"])


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"lines": np.zeros(3, np.float32)},
        {
            "lines": np.zeros((16 << 20) + 1, np.uint8),
            "head": np.zeros(1, np.uint8),
            "certificate": np.zeros(1, np.uint8),
        },
        {name: np.frombuffer(b"\xff{}\n", np.uint8) for name in ("lines", "head", "certificate")},
    ],
    ids=["nothing", "numbers", "too long", "garbage"],
)
def test_nonsense_in_place_of_a_transcript_is_told_and_the_model_is_kept(
    tmp_path: Path, parts: dict[str, np.ndarray[Any, Any]]
) -> None:
    coordinator = LyingCoordinator(tmp_path)
    study = study_of("nonsense", rounds=1)
    coordinator.lie = lambda site, topic, header, message: (
        Message({**message.arrays, "transcript": parts}) if topic == "finish" else message
    )
    coordinator.conduct(study)
    assert any("it cannot be read" in why for why in coordinator.alarms["bo"])
    assert (coordinator.homes["bo"].folder(study_id(study)) / "model.safetensors").exists()
    assert json.loads((coordinator.transcript(study) / "countersigned.json").read_text()) == {}


def test_what_a_replay_cannot_see(tmp_path: Path) -> None:
    """A coordinator that adds a vector of its own to a sum, and goes on honestly from there, is not found.

    The answers are told by hashes only, so nobody sees what they add up to: the report says so in words.
    """
    coordinator = LyingCoordinator(tmp_path)

    def poison(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic, header["round"]) != ("bo", "round", 2):
            return reply
        said, message = decode(reply)
        update = {name: array + np.float32(5) for name, array in message.arrays["update"].items()}
        return encode(said, Message({**message.arrays, "update": update}))

    coordinator.change = poison
    coordinator.conduct(STUDY)
    # As long as it names the answer that it made up, the site finds it...
    assert any("never left here" in one for one in own_findings(coordinator, "bo")["problems"])
    # ... but where it names the one that the site sent, while the sum holds another, nobody does.
    bo, run = coordinator.homes["bo"], coordinator.run(STUDY)
    (true,) = [one["sha256"] for one in coordinator.left("bo", STUDY) if (one["topic"], one["round"]) == ("round", 2)]

    def name_the_true_answer(entries: Entries) -> None:
        rounds_in(entries)[1]["answers"]["bo"] = true

    forge(coordinator.home, coordinator.transcript(STUDY), name_the_true_answer)
    report = replay(read_source(run))
    assert (report.problem, report.replayed) == ("", 3)
    given = own_findings(coordinator, "bo")["model"]
    assert check_own(bo, study_id(STUDY), read_source(run).transcript, given).problems == []
    assert any("nobody can see that alone" in one for one in report.unchecked)
