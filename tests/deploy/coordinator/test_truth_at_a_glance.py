"""What status commands say is true: since when, what goes on, who acts next with which command, every byte."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.life import Capture, Living
from wardround.cli.consortium.status import site_words, status_lines
from wardround.deploy.coordinator import service
from wardround.deploy.party.study_ends import forget_end, note_end
from wardround.deploy.transport.transfers.exchange import Movement

NAMES = ("bo", "freetown", "kenema")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Living:
    return Living(tmp_path_factory.mktemp("truth"), NAMES)


@pytest.fixture
def living(whole: Living) -> Iterator[Living]:
    yield whole
    whole.party.away.clear()


def study_in(facts: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in facts["studies"] if one["study"] == name]
    return dict(found)


def test_a_waiting_study_says_who_must_act_and_how(living: Living, capsys: Capture) -> None:
    study = living.run(capsys, living.study_file("waits"))
    living.party.away.add("kenema")
    living.turn()
    living.approve(study, "bo")
    living.turn()
    with living.at_work():
        facts = living.hub(capsys, "status", "--json").json
        shown = living.hub(capsys, "status").out
    one = study_in(facts, study)
    assert one["approved"] == ["bo"]
    steps = {(step["who"], step["command"]) for step in one["next"]}
    assert steps == {("freetown", f"wardround site approve {study}"), ("kenema", "wardround site start")}
    assert abs(one["since"] - time.time()) < 600
    # what was sent already, while nobody has decided: the offer to each of the two who are here
    sent = [json.loads(line)["entry"] for line in living.home.audit_path.read_bytes().splitlines()]
    assert one["bytes_down"] == sum(entry["bytes"] for entry in sent if entry.get("study") == study) > 0
    assert f"next: freetown, decide: wardround site approve {study}" in shown
    assert "waiting for approval since" in shown
    # at the site
    assert living.site(capsys, "freetown", "status", "--json").json["next"][-1] == f"wardround site approve {study}"
    # nobody can do anything while no coordinator runs
    (step,) = study_in(living.hub(capsys, "status", "--json").json, study)["next"]
    assert step["command"] == "wardround coordinator start"
    with living.at_work():
        living.hub(capsys, "cancel", study)
    living.turn()


def test_the_newest_is_first_and_an_ended_study_is_said_to_be_ended(living: Living, capsys: Capture) -> None:
    done = living.run(capsys, living.study_file("zebra", deploy={"deadline": 1.0}))
    living.turn()
    living.approve(done)
    living.turn(4)
    later = living.run(capsys, living.study_file("apple"))
    living.turn()
    names = [one["study"] for one in living.hub(capsys, "status", "--json").json["studies"]]
    assert names.index(later) < names.index(done)
    assert living.state(done) == "finished"
    said = living.site(capsys, "bo", "studies").out.splitlines()
    (line,) = [one for one in said if done in one]
    assert "finished, says the coordinator" in line
    assert "approved" not in line
    assert said.index(line) > [later in one for one in said].index(True)
    # every byte: what the log says was sent for this study, and all that came back
    facts = study_in(living.status(), done)
    hashes = json.loads((living.home.folder(done) / "traffic.json").read_text())
    entries = [json.loads(one)["entry"] for one in living.homes["bo"].audit_path.read_bytes().splitlines()]
    own = sum(one["bytes"] for one in entries if one.get("study") == done and one["kind"] == "sent")
    assert facts["bytes_down"] == hashes["down"]
    assert facts["bytes_up"] == hashes["up"] > own
    with living.at_work():
        living.hub(capsys, "cancel", later)
    living.turn()


def test_all_that_the_log_says_was_sent_is_counted(living: Living, capsys: Capture) -> None:
    def sent() -> int:
        entries = [json.loads(one)["entry"] for one in living.home.audit_path.read_bytes().splitlines()]
        return sum(one["bytes"] for one in entries if one["kind"] == "sent")

    before = sent()
    study = living.run(capsys, living.study_file("counted", deploy={"deadline": 1.0}))
    living.turn()
    living.approve(study)
    living.turn(4)
    assert living.state(study) == "finished"
    assert study_in(living.status(), study)["bytes_down"] == sent() - before


def test_a_running_study_says_what_goes_on() -> None:
    """Derived by hand: the last rounds took 10 s each, 3 are left."""
    from wardround.deploy.coordinator.status import seconds_left

    rounds = [{"round": number, "seconds": 10.0} for number in (1, 2)]
    assert seconds_left(rounds, 5) == 30.0
    assert seconds_left([], 5) is None
    doing = {"topic": "figures", "answered": 2, "missing": ["kenema"]}
    study = {"study": "s", "state": "running", "round": 2, "rounds": 5, "seconds_a_site": 60.0, "why": "", "since": 0.0}
    facts = {
        "consortium": "c",
        "listen": "h:1",
        "running": True,
        "sites": [],
        "studies": [
            {**study, "doing": doing, "seconds_left": 30.0, "bytes_down": 0, "bytes_up": 0, "epsilon": None, "next": []}
        ],
    }
    text = "\n".join(status_lines(facts, now=90.0))
    assert "judging the model on test patients, 2 answered, waiting for kenema; about 30 s left" in text


def test_a_transfer_that_takes_long_says_how_far_how_fast_and_how_long() -> None:
    """The first round of a 26 MB model took 18 minutes, and the status said "0 bytes to the sites"."""
    site = {"name": "bo", "present": True, "late": "", "warning": "", "revoked": "", "until": "2027-01-01"}
    moving = {"way": "down", "moved": 6_500_000, "of": 26_000_000, "seconds": 52.0}
    # 6.5 MB in 52 s are 125 kB a second, and 19.5 MB more take 156 s.
    assert "connected, receiving 6.5 MB of 26 MB at 125 kB a second, about 2 min left" in site_words(
        {**site, "moving": moving}, True
    )
    both = Movement("down", 10, 100, 2.0).beside(Movement("up", 5, 50, 1.0))
    assert both == Movement("both ways", 15, 150, 2.0)


def test_a_site_hears_when_a_study_comes_and_ends(living: Living, capsys: Capture) -> None:
    heard: list[tuple[str, str]] = []
    living.party.handlers["bo"].on_event = lambda word, facts: heard.append((word, str(facts["study"])))
    study = living.run(capsys, living.study_file("news"))
    living.turn()
    with living.at_work():
        living.hub(capsys, "cancel", study)
        living.turn()
    assert heard == [("offered", study), ("ended", study)]


def test_a_coordinator_cannot_fill_the_list_of_ends(living: Living) -> None:
    home = living.homes["bo"]
    before = home.audit_path.stat().st_size
    note_end(home, {"study": f"never-{'0' * 32}", "state": "finished"})
    assert home.audit_path.stat().st_size == before
    known = next((home.path / "offers").glob("*.json")).stem
    for number in range(40):
        note_end(home, {"study": known, "state": ("finished", "failed")[number % 2]})
        forget_end(home, known)
    assert home.audit_path.read_text().count("told of end") <= 20


def test_watch_shows_it_again_until_stopped(living: Living, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", nap)
    said = living.site(capsys, "bo", "status", "--watch")
    assert said.code == 0
    assert said.out.count("Studies") == 2


def test_a_status_that_is_being_written_does_not_wait_for_who_waits_for_it(
    living: Living, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new study is told of while the desk is locked; who wrote the status just then waited for it for ever."""
    study = living.run(capsys, living.study_file("told-of"))
    coordinator, begun, go_on = living.coordinator, threading.Event(), threading.Event()
    real = service.queued_studies

    def slow(home: Any) -> list[str]:
        if threading.current_thread().name == "status":
            begun.set()
            go_on.wait(10)
        return real(home)

    monkeypatch.setattr(service, "queued_studies", slow)
    threads = [
        threading.Thread(target=coordinator.write_status, name="status", daemon=True),
        threading.Thread(target=coordinator.desk.look, name="look", daemon=True),
    ]
    threads[0].start()
    assert begun.wait(10)
    threads[1].start()
    time.sleep(0.2)  # as long as it takes to the lock
    go_on.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive(), thread.name
    assert study in coordinator.desk.standings
    with living.at_work():
        living.hub(capsys, "cancel", study)
    living.turn()
