"""Parties in their own processes over real sockets: what is asked is answered, and every way in which it is not."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import stage as acting

pytest.importorskip("nvflare", reason="the network needs wardround[deploy]")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stage forks")
MB = 1 << 20


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with acting.stage_in(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(acting.consortium(tmp_path_factory.mktemp("consortium"), "a", "b", "c"))


@pytest.fixture(scope="module")
def three(stage: Any, folder: str) -> Any:
    return acting.Play(stage, folder, "abc")


@pytest.mark.parametrize("size", [0, 1, 1000, MB - 1, MB, MB + 1, 26_000_000], ids=str)
def test_what_is_asked_comes_back_whole(three: Any, size: int) -> None:
    """CellNet cuts messages into parts of a megabyte: sizes on both sides of the cut, and a large model."""
    told = three.hub.ask(target="a", size=size)
    assert told["same"]
    assert told["size"] == size


def test_a_site_hears_who_asks(three: Any) -> None:
    three.hub.ask(target="b", size=10)
    assert three.sites["b"].told()["heard"][-1] == "server"


def test_all_sites_are_asked_at_once(three: Any) -> None:
    assert three.hub.ask_all(targets=["a", "b", "c"] * 5, times=4, size=20_000) == 60


def test_a_failing_handler_tells_nothing_but_that(three: Any) -> None:
    told = three.hub.ask(target="a", topic="fail")
    assert told["why"] == "the request could not be answered"
    assert not told["gone"]


def test_a_question_that_nobody_answers_is_refused_at_once(three: Any) -> None:
    told = three.hub.ask(target="a", topic="rumour", within=20)
    assert "no such request" in told["why"]
    assert told["seconds"] < 10


def test_who_is_not_there_is_not_waited_for(three: Any) -> None:
    told = three.hub.ask(target="nobody", within=20)
    assert told["gone"]
    assert told["seconds"] < 5


def test_a_late_answer_is_refused_and_the_next_question_answered(three: Any) -> None:
    told = three.hub.ask(target="c", topic="slow", text="1.0", within=0.3)
    assert told["why"] == "it did not answer within 0 s"
    late = "it answers no pending request, or too late"
    acting.until(lambda: three.hub.told()["refused"].get("c", {}).get(late))
    assert three.hub.ask(target="c", size=100)["same"]


def test_an_answer_larger_than_the_question_allows_is_not_received(three: Any) -> None:
    """Announced or not: it is counted as it comes, the site is named, and the next question is answered."""
    told = three.hub.ask(target="b", size=6_000_000, within=3, most=2_000_000)
    assert "same" not in told
    assert "its answer is larger than the question allows" in three.hub.told()["refused"]["b"]
    assert three.hub.ask(target="b", size=1_900_000, most=2_000_000)["same"]
    assert three.hub.ask(target="b", size=6_000_000)["same"]


def test_memory_and_threads_stay_flat(three: Any) -> None:
    """CellNet by itself keeps each answer for a minute, with a thread: a thousand asks would show it."""
    sites = ["a", "b", "c"]
    three.hub.ask_all(targets=sites, times=60)
    before = three.hub.size()
    assert three.hub.ask_all(targets=sites, times=334) == 1002
    after = three.hub.size()
    assert after["threads"] - before["threads"] <= 10
    assert after["bytes"] - before["bytes"] < 24 * MB


def crowd_of(stage: Any, place: Path, count: int) -> tuple[Any, list[str], int]:
    """A coordinator with so many sites; how many threads it had before they came."""
    names = [f"s{number}" for number in range(count)]
    acting.consortium(place, *names)
    hub, crowd, port = stage.actor(), stage.actor(), acting.free_port()
    hub.start(name="hub", port=port, folder=str(place), hub=True)
    before = hub.size()["threads"]
    crowd.crowd(names=names, port=port, folder=str(place))
    acting.until(lambda: len(hub.present()) == count, 120)
    return hub, names, before


def test_no_thread_waits_for_a_connection_or_an_answer(stage: Any, tmp_path: Path) -> None:
    hub, names, before = crowd_of(stage, tmp_path / "crowd", 24)
    assert hub.ask_together(targets=names) == 24
    # FLARE's own server has two threads for each connection, and a question used to have one: 72 more.
    assert hub.size()["threads"] - before < 40


@pytest.mark.slow
def test_the_101st_site_connects(stage: Any, tmp_path: Path) -> None:
    """FLARE's server has a hundred threads and keeps one for each site: the next was told that it is there already."""
    hub, names, _ = crowd_of(stage, tmp_path / "crowd", 110)
    assert hub.ask_together(targets=names) == 110


def test_large_answers_are_not_kept(three: Any) -> None:
    sites = ["a", "b", "c"]
    three.hub.ask_all(targets=sites, times=3, size=6_000_000)
    before = three.hub.size()
    three.hub.ask_all(targets=sites, times=5, size=6_000_000)
    # Fifteen answers and as many questions: 180 MB, if nothing were given back.
    assert three.hub.size()["bytes"] - before["bytes"] < 60 * MB


def test_a_killed_site_ends_the_wait_at_once_and_comes_back(stage: Any, folder: str) -> None:
    play = acting.Play(stage, folder, "a")
    play.hub.send("ask", target="a", topic="slow", text="60", within=60)
    acting.until(lambda: play.sites["a"].pid)
    threading.Timer(0.5, play.sites["a"].kill).start()
    told = play.hub.receive()
    assert told["gone"]
    assert told["why"] == "it disconnected before it answered"
    assert told["seconds"] < 20
    play.wait_for()
    play.join("a")
    play.wait_for("a")
    assert play.hub.ask(target="a", size=10)["same"]
    acting.until(lambda: play.hub.told()["events"] == [["a", True], ["a", False], ["a", True]])


def test_a_site_that_stops_is_gone_and_its_process_ends(stage: Any, folder: str) -> None:
    """Also after a goodbye, of which CellNet does not tell."""
    play = acting.Play(stage, folder, "ab")
    play.hub.ask_all(targets=["a", "b"], times=3)
    play.sites["a"].stop()
    play.wait_for("b")
    play.sites["a"].send("end")
    acting.until(lambda: not Path(f"/proc/{play.sites['a'].pid}").exists(), 15)
    play.hub.stop()
    play.hub.send("end")
    acting.until(lambda: not Path(f"/proc/{play.hub.pid}").exists(), 15)
    acting.until(lambda: play.sites["b"].told()["events"] == [["server", True], ["server", False]])


def test_sites_find_a_coordinator_that_was_killed_and_started_anew(stage: Any, folder: str) -> None:
    play = acting.Play(stage, folder, "ab")
    play.hub.kill()
    acting.until(lambda: play.sites["a"].told()["events"][-1] == ["server", False])
    play.hub = stage.actor()
    play.hub.start(name="hub", port=play.port, folder=folder, hub=True)
    play.wait_for("a", "b")
    assert play.hub.ask_all(targets=["a", "b"]) == 2


def test_silence_is_noticed(stage: Any, folder: str) -> None:
    """A frozen process keeps its connection open; only that it no longer answers tells (here after 1 s, not 25)."""
    play = acting.Play(stage, folder, "a", keepalive=1000)
    play.sites["a"].kill(signal.SIGSTOP)
    try:
        told = play.hub.ask(target="a", size=10, within=25)
        assert told["gone"]
        play.wait_for()
    finally:
        play.sites["a"].kill(signal.SIGCONT)
    play.wait_for("a")


def test_a_second_process_of_a_site_is_kept_out_while_the_first_lives(stage: Any, folder: str) -> None:
    play = acting.Play(stage, folder, "a")
    second = play.join("a", after=0.5)
    acting.until(lambda: second.told()["worries"])
    assert "another process or machine" in second.told()["worries"][-1]
    assert "it is already connected" in next(iter(play.hub.told()["refused"]["a"]))
    assert play.hub.ask(target="a", size=10)["same"]
    assert play.sites["a"].told()["heard"] == ["server"]
    play.sites["a"].kill()
    acting.until(lambda: play.hub.present() == ["a"] and play.hub.ask(target="a", size=10).get("same"))
    assert second.told()["heard"]


def test_an_address_in_use_is_refused_with_words(stage: Any, folder: str) -> None:
    play = acting.Play(stage, folder, "")
    with pytest.raises(AssertionError, match=r"Refusal: Cannot listen at 127\.0\.0\.1:.*in use.*Fix"):
        stage.actor().start(name="hub", port=play.port, folder=folder, hub=True)


def test_only_the_address_that_was_named_is_listened_at(three: Any) -> None:
    socket.create_connection(("127.0.0.1", three.port), 5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", three.port), 5)


def test_a_party_can_be_stopped_and_made_anew(stage: Any, folder: str) -> None:
    play = acting.Play(stage, folder, "a")
    play.sites["a"].stop()
    play.wait_for()
    play.sites["a"].start(name="a", port=play.port, folder=folder)
    play.wait_for("a")
    assert play.hub.ask(target="a", size=10)["same"]


def test_addresses_that_the_network_cannot_take_are_refused(stage: Any, folder: str) -> None:
    with pytest.raises(AssertionError, match="use a host name"):
        stage.actor().start(name="a", port=1, host="[::1]", folder=folder)


def test_nothing_was_printed_but_what_a_person_wants(three: Any, stage: Any) -> None:
    """gRPC and FLARE have much to say when something fails; it is for their developers."""
    assert os.path.exists(stage.log)
    text = stage.log.read_text(encoding="utf-8")
    assert "nvflare" not in text.replace("site-packages/nvflare", "")
    assert "grpc" not in text.lower().replace("nvflare/fuel/f3/drivers/grpc", "")
