"""Real processes over mutual TLS: killed, silent, cut off, joining twice, with a full disk. Each comes back by itself.

One consortium for all of these tests, since starting it is what takes the time; longer trials are `make soak`.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults import soak
from wardround.deploy.protocol.wire import PROTOCOL

pytest.importorskip("nvflare")
COORDINATOR, until, study_of, KEPT = soak.COORDINATOR, soak.until, soak.study_of, soak.KEPT


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    # A short path: the name of a socket may have 107 characters.
    folder = Path(tmp_path_factory.mktemp("c"))
    with soak.parties.consortium_in(folder, small=(COORDINATOR, "bo")) as made:
        made.start()
        made.connected()
        yield made


@pytest.fixture(scope="module")
def reference(consortium: Any) -> str:
    return soak.undisturbed(consortium, "undisturbed")


@pytest.fixture
def whole(consortium: Any) -> Iterator[Any]:
    """The consortium with everybody there, before and after."""
    for name in (COORDINATOR, *consortium.names):
        if name not in consortium.processes or consortium.processes[name].dead:
            consortium.start(name)
    consortium.connected()
    yield consortium
    for process in consortium.processes.values():
        process.signal(signal.SIGCONT)


def waiting_for(consortium: Any, study: str, rounds: int) -> None:
    until(lambda: (consortium.approve(study), len(consortium.rounds(study)) >= rounds)[1], 60, f"round {rounds}")


@pytest.mark.parametrize(
    ("point", "who"),
    [
        ("coordinator.study.ended", COORDINATOR),
        pytest.param("coordinator.state.partial", COORDINATOR, marks=pytest.mark.slow),
        ("coordinator.checkpoint.partial:2", COORDINATOR),
        ("site.audit.written:9", "freetown"),
        pytest.param("site.kept.partial:2", "kenema", marks=pytest.mark.slow),
    ],
)
def test_a_process_that_dies_at_a_point_and_is_started_again(whole: Any, reference: str, point: str, who: str) -> None:
    died, _ = soak.die_at(whole, point, study_of(point.replace(":", "-"), algorithm=KEPT), reference, who)
    assert died


@pytest.mark.slow
def test_random_kills_lose_and_double_no_round(whole: Any) -> None:
    random.seed(278)
    expected = soak.undisturbed(whole, "calm", 25)
    assert soak.chaos(whole, 25, lambda: random.uniform(0.5, 1.5), expected) >= 1


@pytest.mark.slow
def test_two_studies_side_by_side_survive_the_death_of_the_coordinator_and_of_a_site(whole: Any) -> None:
    """Killed with -9 while both train; both go on, with the bits of those that nobody disturbed."""
    other = {"name": "scaffold", "learning_rate": 0.05}
    alone = [soak.undisturbed(whole, "alone-a", 12), soak.undisturbed(whole, "alone-b", 12, algorithm=other)]
    both = [
        whole.queue(study_of("beside-a", 12, algorithm=KEPT)),
        whole.queue(study_of("beside-b", 12, algorithm=other)),
    ]

    def done() -> list[int]:
        for study in both:
            whole.approve(study)
        return [len(whole.rounds(study)) for study in both]

    until(lambda: min(done()) >= 1, 120, "a round of each")
    assert sorted(whole.status()["running"]) == sorted(both)
    whole.kill(COORDINATOR)
    whole.start(COORDINATOR)
    before = done()
    until(lambda: min(now - then for now, then in zip(done(), before, strict=True)) >= 1, 120, "another round of each")
    whole.kill("bo")
    whole.start("bo")
    for study, reference in zip(both, alone, strict=True):
        assert whole.ended(study, 180)["state"] == "finished"
        soak.same_as(whole, study, reference)


def test_a_killed_coordinator_is_back_and_a_killed_site_is_missed(whole: Any) -> None:
    """The bars are 10 s and 30 s; the figures are in `soak.py recovery`."""
    whole.restart(COORDINATOR)
    since = time.time()
    until(lambda: whole.status().get("at", 0) > since and len(whole.status()["present"]) == 3, 30, "their return")
    whole.kill("bo")
    until(lambda: "bo" not in whole.status()["present"], 30, "notice of a dead site")


def test_a_fault_that_nobody_foresaw_ends_the_process_and_frees_its_port(whole: Any) -> None:
    """Before, what was left held the port and answered nothing, and no service manager could start another one."""
    whole.kill(COORDINATOR)
    whole.start(COORDINATOR, faulty=True)
    whole.connected()
    fault = whole.home.path / "fault"
    fault.touch()
    try:
        until(lambda: whole.processes[COORDINATOR].dead, 15, "the end of the process")
    finally:
        fault.unlink()
    assert "ended by a fault of its own (ZeroDivisionError)" in whole.log(COORDINATOR)
    assert "nobody foresaw this" in (whole.home.path / "faults.log").read_text()
    whole.start(COORDINATOR)
    whole.connected()


def test_sigterm_ends_a_coordinator_in_the_middle_of_a_question(whole: Any) -> None:
    """A site that has stopped keeps it waiting for its deadline of a minute; told to end, it waits no more."""
    study = whole.queue(study_of("ended-early", 3, algorithm=KEPT, deploy={"deadline": 60}))
    waiting_for(whole, study, 1)
    whole.processes["kenema"].signal(signal.SIGSTOP)
    whole.processes[COORDINATOR].signal(signal.SIGTERM)
    until(lambda: whole.processes[COORDINATOR].dead, 15, "its end")
    whole.processes["kenema"].signal(signal.SIGCONT)
    assert whole.ended(study)["state"] == "finished"


@pytest.mark.slow
def test_a_newcomer_is_admitted_in_the_middle(whole: Any) -> None:
    """A site of the study that was away when it began: it is offered the study, approves, prepares and trains."""
    whole.kill("kenema")
    until(lambda: "kenema" not in whole.status()["present"], 30, "notice of its death")
    study = whole.queue(study_of("newcomer", 200, algorithm=KEPT, deploy={"quorum": 2, "deadline": 1.5}))
    waiting_for(whole, study, 2)
    assert not (whole.homes["kenema"].path / "offers" / f"{study}.json").exists()
    whole.start("kenema")
    until(
        lambda: (whole.approve(study), any("kenema" in one["sites"] for one in whole.rounds(study)))[1], 90, "its round"
    )
    assert [one["round"] for one in whole.rounds(study)][:2] == [1, 2]
    assert "kenema" not in whole.rounds(study)[0]["sites"]
    assert "round" in {one["topic"] for one in whole.left("kenema", study)}
    assert whole.ended(study, 180)["state"] == "finished"


@pytest.mark.slow
def test_a_silent_site_is_late_and_the_round_goes_on_with_the_quorum(whole: Any) -> None:
    """Stopped, it holds its connection and says nothing: what a cut line or a frozen machine looks like at first."""
    study = whole.queue(study_of("silent", 30, algorithm=KEPT, deploy={"quorum": 2, "deadline": 1.5}))
    waiting_for(whole, study, 2)
    whole.processes["kenema"].signal(signal.SIGSTOP)
    until(lambda: any("kenema" not in one["sites"] for one in whole.rounds(study)), 40, "a round without kenema")
    whole.processes["kenema"].signal(signal.SIGCONT)
    without = [one for one in whole.rounds(study) if "kenema" not in one["sites"]]
    assert "did not answer within" in without[0]["measures"]["absent"]["kenema"]
    last = without[-1]["round"]
    until(lambda: any("kenema" in one["sites"] for one in whole.rounds(study) if one["round"] > last), 60, "its return")
    assert whole.ended(study)["state"] == "finished"
    assert [one["round"] for one in whole.rounds(study)] == list(range(1, 31))
    # Its late answer was refused, and whoever looks is told.
    assert any("too late" in why for why in whole.status()["refused"].get("kenema", {}))


@pytest.mark.slow
def test_a_full_disk_at_a_site_is_told_and_the_study_goes_on_when_there_is_room(whole: Any, reference: str) -> None:
    if not whole.small["bo"]:
        pytest.skip("needs the right to mount a small disk")
    study = whole.queue(study_of("no-room-at-a-site", algorithm=KEPT))
    until(lambda: (whole.approve(study), len(whole.left("bo", study)) >= 3)[1])
    whole.fill("bo")
    until(
        lambda: "No space left" in whole.status()["running"].get(study, {}).get("missing", {}).get("bo", ""),
        30,
        "the reason",
    )
    assert not whole.processes["bo"].dead
    whole.make_room("bo")
    assert whole.ended(study, revive=False)["state"] == "finished"
    soak.same_as(whole, study, reference)


@pytest.mark.slow
def test_a_full_disk_at_the_coordinator_is_told_and_waited_for(whole: Any, reference: str) -> None:
    if not whole.small[COORDINATOR]:
        pytest.skip("needs the right to mount a small disk")
    study = whole.queue(study_of("no-room-at-all", 3, algorithm=KEPT))
    waiting_for(whole, study, 1)
    whole.fill(COORDINATOR)
    until(lambda: "No space left" in whole.log(COORDINATOR), 30, "word of it")
    assert not whole.processes[COORDINATOR].dead
    whole.make_room(COORDINATOR)
    assert whole.ended(study, revive=False)["state"] == "finished"
    soak.same_as(whole, study, reference)


@pytest.mark.slow
def test_a_second_process_of_the_same_site_is_kept_out_and_told(whole: Any) -> None:
    """The same certificate from a copied folder: the first one stays, whatever it does."""
    first = whole.processes["bo"]
    copy = whole.folder / "copy"
    shutil.copytree(whole.homes["bo"].path, copy)
    second = soak.parties.Process(
        whole._socket, {"party": "bo", "home": str(copy), "log": str(whole.folder / "copy.log")}
    )
    try:
        until(
            lambda: any("already connected" in why for why in whole.status().get("refused", {}).get("bo", {})),
            30,
            "word of a second bo",
        )
        until(
            lambda: "with the same certificate" in (whole.folder / "copy.log").read_text(), 40, "word at the second bo"
        )
        assert "bo" in whole.status()["present"]
        assert not first.dead
    finally:
        second.kill()


@pytest.mark.slow
def test_a_site_with_another_version_takes_part_and_one_with_a_far_protocol_is_named(whole: Any) -> None:
    whole.kill("bo")
    whole.start("bo", version="9.9.9")
    try:
        until(lambda: whole.status().get("versions", {}).get("bo") == "9.9.9", 60, "the version")
        assert whole.status().get("warnings", {}).get("bo") is None
        assert whole.ended(whole.queue(study_of("versions")))["state"] == "finished"
        whole.kill("bo")
        whole.start("bo", protocol=PROTOCOL + 2)
        expected = f"this site speaks {PROTOCOL + 2}"
        # The first warning that is shown is this one: none stays from the process that was killed.
        until(lambda: whole.status().get("warnings", {}).get("bo", ""), 60, "a warning")
        assert expected in whole.status()["warnings"]["bo"]
        state = whole.ended(whole.queue(study_of("protocols")))
        assert state["state"] == "failed"
        assert expected in state["why"]
        assert "bo" in state["why"]
    finally:
        whole.restart("bo")
    until(lambda: "bo" not in whole.status().get("warnings", {}), 60, "the end of the warning")


def can_make_a_network() -> bool:
    if os.geteuid() or not shutil.which("ip"):
        return False
    made = subprocess.run(["ip", "netns", "add", "wardround-probe"], capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "del", "wardround-probe"], capture_output=True, check=False)
    return made


@pytest.mark.slow
@pytest.mark.skipif(not can_make_a_network(), reason="needs the right to make network namespaces")
def test_a_site_behind_a_cut_line_is_missed_and_comes_back(tmp_path: Path) -> None:
    """A network of its own for one site, whose cable is pulled: no packet says goodbye."""
    space, here, there = f"wr{os.getpid()}", f"wh{os.getpid()}", f"wt{os.getpid()}"
    commands = [
        f"ip netns add {space}",
        f"ip link add {here} type veth peer name {there}",
        f"ip link set {there} netns {space}",
        f"ip addr add 10.251.7.1/30 dev {here}",
        f"ip link set {here} up",
        f"ip -n {space} addr add 10.251.7.2/30 dev {there}",
        f"ip -n {space} link set {there} up",
        f"ip -n {space} link set lo up",
    ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)
        with soak.parties.consortium_in(tmp_path / "c", host="10.251.7.1") as consortium:
            consortium.start(COORDINATOR, "bo", "freetown", keepalive=2000)
            consortium.start("kenema", netns=space, keepalive=2000)
            consortium.connected()
            study = consortium.queue(study_of("cut", 400, algorithm=KEPT, deploy={"quorum": 2, "deadline": 2}))
            waiting_for(consortium, study, 2)
            subprocess.run(["ip", "link", "set", here, "down"], check=True)
            until(lambda: "kenema" not in consortium.status()["present"], 30, "notice of the cut")
            waiting_for(consortium, study, len(consortium.rounds(study)) + 2)
            subprocess.run(["ip", "link", "set", here, "up"], check=True)
            consortium.connected(seconds=60)
            done = len(consortium.rounds(study))
            until(lambda: any("kenema" in one["sites"] for one in consortium.rounds(study)[done:]), 60, "its return")
    finally:
        subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", here], check=False, capture_output=True)
