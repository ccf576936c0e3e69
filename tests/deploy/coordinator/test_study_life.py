"""A study's life for people: offered with all others, denied, cancelled, amended, mended, told when it ended."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.life import Capture, Living
from wardround.deploy.coordinator.events import StudyEnded
from wardround.deploy.party.decisions import read_decision
from wardround.deploy.party.study_ends import read_end

NAMES = ("bo", "freetown", "kenema")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Living:
    return Living(tmp_path_factory.mktemp("living"), NAMES)


@pytest.fixture
def living(whole: Living) -> Iterator[Living]:
    yield whole
    whole.party.away.clear()


def entries(path: Path, **words: Any) -> list[dict[str, Any]]:
    found = [json.loads(line)["entry"] for line in path.read_bytes().splitlines()]
    return [one for one in found if all(one.get(key) == value for key, value in words.items())]


def end_of(living: Living, study: str) -> StudyEnded:
    return [one for one in living.heard if isinstance(one, StudyEnded) and one.study == study][-1]


def test_a_denial_leaves_a_site_out_if_the_quorum_allows(living: Living, capsys: Capture) -> None:
    study = living.run(capsys, living.study_file("denied", deploy={"quorum": 2}))
    living.turn()
    living.approve(study, "bo", "freetown")
    assert living.site(capsys, "kenema", "deny", study, "--by", "admin", "--why", "not now").code == 0
    living.turn()
    assert living.state(study) == "finished"
    rounds = (living.home.folder(study) / "run" / "rounds.jsonl").read_text()
    assert '"sites": ["bo", "freetown"]' in rounds
    assert "not now" in rounds
    assert entries(living.homes["kenema"].audit_path, kind="sent", study=study) == []


def test_without_a_quorum_the_study_is_amended_and_nobody_else_is_asked_again(living: Living, capsys: Capture) -> None:
    study = living.run(capsys, living.study_file("all"))
    living.turn()
    living.approve(study, "bo", "freetown")
    living.site(capsys, "kenema", "deny", study, "--by", "admin", "--why", "not now")
    living.turn()
    assert living.state(study) == "failed"
    assert f"wardround coordinator amend {study} --without kenema" in end_of(living, study).why
    with living.at_work():
        said = living.hub(capsys, "amend", study, "--without", "kenema", "--by", "Anna Sesay", "--json")
    new = said.json["study"]
    living.turn()
    assert living.state(new) == "finished"
    assert living.state(study) == "amended"
    for name in ("bo", "freetown"):
        before, after = (read_decision(living.homes[name], one) for one in (study, new))
        assert before is not None
        assert after is not None
        assert (before.state, after.state) == ("withdrawn", "approved")
        assert after.by == f"admin of {name}"
        assert entries(living.homes[name].audit_path, kind="approved", study=new)
    assert read_decision(living.homes["kenema"], new) is None


def test_a_change_that_concerns_a_site_is_asked_anew(living: Living, capsys: Capture) -> None:
    study = living.run(capsys, living.study_file("changed"))
    living.turn()
    living.approve(study, "bo")
    path = living.study_file("changed", algorithm={"learning_rate": 0.2})
    with living.at_work():
        new = living.hub(capsys, "amend", study, path, "--by", "Anna Sesay", "--json").json["study"]
    living.turn()
    assert read_decision(living.homes["bo"], new) is None
    shown = living.site(capsys, "bo", "studies", new).out
    assert "amends" in shown
    assert "[algorithm] learning_rate" in shown
    assert living.state(new) == "queued"
    with living.at_work():
        assert living.hub(capsys, "cancel", new).code == 0
    living.turn()


def test_an_approval_moves_only_while_nothing_has_left(living: Living, capsys: Capture) -> None:
    """A coordinator that amends a study that was answered would else get all answers twice, from one approval."""
    study = living.run(capsys, living.study_file("answered", deploy={"quorum": 2}))
    living.turn()
    living.approve(study)
    living.turn()
    assert living.state(study) == "finished"
    # a coordinator that lies calls it amended all the same
    from tests.support.in_process import study_of
    from wardround.deploy.party.decisions import read_offer
    from wardround.deploy.protocol.study_id import study_id
    from wardround.deploy.site.authorization import HomeAccess

    old = read_offer(living.homes["bo"], study)
    words = {**old.study, "deploy": {**old.study["deploy"], "deadline": 99.0}}
    new = study_of("x").model_validate(words)
    HomeAccess(living.homes["bo"]).store_offer(study_id(new), words, old.submitter, None, study)
    assert read_decision(living.homes["bo"], study_id(new)) is None
    before = read_decision(living.homes["bo"], study)
    assert before is not None
    assert before.state == "approved"


def test_who_hides_among_others_is_asked_when_they_are_others(living: Living, capsys: Capture) -> None:
    study = living.run(capsys, living.study_file("hidden", transforms=[{"name": "secure_sum"}]))
    living.turn()
    living.approve(study, "bo")
    with living.at_work():
        said = living.hub(capsys, "amend", study, living.study_file("hidden", deploy={"deadline": 90.0}), "--json")
    new = said.json["study"]
    living.party.away |= {"freetown", "kenema"}
    living.turn()
    assert read_decision(living.homes["bo"], new) is None
    with living.at_work():
        living.hub(capsys, "cancel", new)
    living.turn()


def test_a_cancelled_study_ends_and_its_sites_are_told(living: Living, capsys: Capture) -> None:
    study = living.run(capsys, living.study_file("cancelled"))
    living.turn()
    living.party.away.add("kenema")
    with living.at_work():
        assert living.hub(capsys, "cancel", study, "--why", "wrong outcome", "--by", "Anna").code == 0
        living.turn()
    assert living.state(study) == "cancelled"
    assert read_end(living.homes["bo"], study)["why"] == "wrong outcome"
    assert read_end(living.homes["kenema"], study) == {}
    living.party.away.clear()
    living.turn()
    assert read_end(living.homes["kenema"], study)["state"] == "cancelled"
    assert "cancelled" in living.site(capsys, "kenema", "studies").out
    # and it can be taken up again
    with living.at_work():
        living.hub(capsys, "resume", study)
    living.turn()
    assert read_end(living.homes["bo"], study) == {}
    living.approve(study)
    living.turn()
    assert living.state(study) == "finished"


def test_a_running_study_is_cancelled_between_two_questions(living: Living, capsys: Capture) -> None:
    study = living.run(capsys, living.study_file("stopped", study={"rounds": 50}))
    living.turn()
    living.approve(study)
    ask = living.party.ask

    def cancel_in_round_two(target: str, topic: str, body: bytes, *, within: float) -> bytes:
        begun = topic == "judge" and (living.home.folder(study) / "run" / "rounds.jsonl").exists()
        if begun and target == "bo" and not (living.home.folder(study) / "ending.json").exists():
            with living.at_work():
                assert living.hub(capsys, "cancel", study).code == 0
            living.coordinator.look()
        return ask(target, topic, body, within=within)

    living.party.ask = cancel_in_round_two  # type: ignore[method-assign]
    try:
        living.turn()
    finally:
        living.party.ask = ask  # type: ignore[method-assign]
    assert living.state(study) == "cancelled"
    rounds = (living.home.folder(study) / "run" / "rounds.jsonl").read_text().splitlines()
    assert len(rounds) < 5


def test_a_corrected_table_is_seen_after_reread_and_resume(living: Living, capsys: Capture) -> None:
    right = living.spoil("kenema", "temperature", "high")
    study = living.run(capsys, living.study_file("mended"))
    living.turn()
    living.approve(study, "bo", "freetown")
    refused = living.site(capsys, "kenema", "approve", study, "--yes", "--by", "admin of kenema")
    assert "temperature" in refused.err  # before anything is asked
    living.approve(study, "kenema")
    living.turn()
    assert living.state(study) == "failed"
    assert "temperature" in end_of(living, study).why
    right.to_csv(living.tables["kenema"], index=False)
    # without a decision at the site the same question gets the same answer
    with living.at_work():
        living.hub(capsys, "resume", study)
    living.turn()
    assert living.state(study) == "failed"
    before = sum("query/" in str(one.get("release")) for one in entries(living.homes["kenema"].audit_path, study=study))
    assert living.site(capsys, "kenema", "reread", study, "--yes", "--by", "admin of kenema").code == 0
    with living.at_work():
        living.hub(capsys, "resume", study)
    living.turn()
    assert living.state(study) == "finished"
    after = sum("query/" in str(one.get("release")) for one in entries(living.homes["kenema"].audit_path, study=study))
    assert after > before
    # what follows from the data has left: it is too late now
    late = living.site(capsys, "kenema", "reread", study, "--yes", "--by", "admin of kenema")
    assert "ask for a changed study" in late.err


def test_a_study_that_waits_holds_up_no_other_and_all_are_offered_at_once(living: Living, capsys: Capture) -> None:
    before = len(entries(living.home.audit_path, kind="sent", topic="offer"))
    first = living.run(capsys, living.study_file("first"))
    second = living.run(capsys, living.study_file("second", study={"seed": 5}))
    living.turn()
    for name in NAMES:
        shown = living.site(capsys, name, "studies").out
        assert first in shown
        assert second in shown
    living.approve(second)
    living.turn()
    assert (living.state(first), living.state(second)) == ("queued", "finished")
    # a day of waiting adds nothing to the log
    offers = entries(living.home.audit_path, kind="sent", topic="offer")
    sent = len(entries(living.home.audit_path, kind="sent"))
    living.turn(20)
    assert len(entries(living.home.audit_path, kind="sent")) == sent
    assert len(offers) - before == 2 * len(NAMES)
    with living.at_work():
        living.hub(capsys, "cancel", first)
    living.turn()


def test_a_site_that_was_away_at_the_end_gets_the_model_it_helped_to_train(living: Living, capsys: Capture) -> None:
    study = living.run(capsys, living.study_file("late", deploy={"quorum": 2, "deadline": 0.1}))
    living.turn()
    living.approve(study)
    ask = living.party.ask

    def leave_before_the_end(target: str, topic: str, body: bytes, *, within: float) -> bytes:
        if topic == "figures":
            living.party.away.add("kenema")
        return ask(target, topic, body, within=within)

    living.party.ask = leave_before_the_end  # type: ignore[method-assign]
    try:
        living.turn()
    finally:
        living.party.ask = ask  # type: ignore[method-assign]
    assert living.state(study) == "finished"
    model = living.homes["kenema"].folder(study) / "model.safetensors"
    others = living.homes["bo"].folder(study) / "model.safetensors"
    assert others.exists()
    assert not model.exists()
    living.begin()  # the coordinator is started anew in between
    living.party.away.clear()
    living.turn()
    assert model.read_bytes() == others.read_bytes()
    assert not (living.home.folder(study) / "errands.json").exists()


def test_who_is_here_hears_of_the_end_before_a_process_for_one_study_is_gone(living: Living, capsys: Capture) -> None:
    """`coordinator run --wait` left while another of its threads was on its way, and sites said "approved" for ever."""
    study = living.run(capsys, living.study_file("told"))
    living.turn()
    living.approve(study)
    living.turn(1)
    while (name := living.coordinator.desk.next_study()) is not None:
        living.coordinator.run(name)
    ask = living.party.ask

    def slow(target: str, topic: str, body: bytes, *, within: float) -> bytes:
        time.sleep(0.3 if topic == "ended" else 0)
        return ask(target, topic, body, within=within)

    living.party.ask = slow  # type: ignore[method-assign]
    try:
        living.coordinator.desk.look()  # as the thread that looks after studies does
        living.coordinator.work(until_done=True)
    finally:
        living.party.ask = ask  # type: ignore[method-assign]
    assert [read_end(living.homes[name], study).get("state") for name in NAMES] == ["finished"] * 3
