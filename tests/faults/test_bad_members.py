"""A member that turned bad: what it sends makes no objects, and reaches no other site and no other machine.

A control shows that each attack works against FLARE's own cell.
"""

import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.processes import stage as acting

pytest.importorskip("nvflare", reason="the network needs wardround[deploy]")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stage forks")
MB = 1 << 20
OBJECTS = ["object", "object on a strange channel", "object in parts", "bulk", "certificate"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with acting.stage_in(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(acting.consortium(tmp_path_factory.mktemp("ours"), "a", "b"))


def test_flare_itself_makes_objects_from_what_a_site_sends(stage: Any, folder: str) -> None:
    """The control: the attacks below do reach FLARE's own decoder where there is no gate."""
    hub, site, port = stage.actor(), stage.actor(), acting.free_port()
    hub.watch_decoding()
    hub.bare(name="hub", port=port, folder=folder, hub=True)
    site.bare(name="b", port=port, folder=folder)
    acting.until(lambda: site.arrived() == ["server"])
    for count, kind in enumerate(OBJECTS, 1):
        site.throw(kind=kind)
        acting.until(lambda count=count: hub.made_objects() >= count)


def test_flare_itself_forwards_and_connects_where_it_is_told(stage: Any, folder: str) -> None:
    """The same control for the two attacks on others."""
    hub, good, bad, port = stage.actor(), stage.actor(), stage.actor(), acting.free_port()
    hub.bare(name="hub", port=port, folder=folder, hub=True)
    for actor, name in ((good, "a"), (bad, "b")):
        actor.bare(name=name, port=port, folder=folder)
        acting.until(lambda actor=actor: actor.arrived() == ["server"])
    assert bad.throw(kind="forward", victim="a") == "ok"
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(10)
        bad.throw(kind="connect elsewhere", victim="c", port=trap.getsockname()[1])
        trap.accept()[0].close()
    for actor in (hub, good, bad):
        actor.kill()


@pytest.fixture
def traitor(stage: Any, folder: str) -> Iterator[tuple[Any, Any, Any]]:
    """A coordinator and a site as they should be, and a site that does as it likes."""
    hub, good, bad, port = stage.actor(), stage.actor(), stage.actor(), acting.free_port()
    hub.watch_decoding()
    hub.start(name="hub", port=port, folder=folder, hub=True)
    good.watch_decoding()
    good.start(name="a", port=port, folder=folder)
    bad.bare(name="b", port=port, folder=folder, answers="objects")
    acting.until(lambda: hub.present() == ["a", "b"])
    acting.until(lambda: "server" in bad.arrived())  # it may know later than the coordinator that it is connected
    yield hub, good, bad
    for actor in (hub, good, bad):
        actor.kill()


def test_no_object_is_made_from_what_a_site_sends(traitor: tuple[Any, Any, Any]) -> None:
    """No code on the wire: not by any channel, and not as an answer."""
    hub, good, bad = traitor
    for kind in OBJECTS:
        bad.throw(kind=kind)
    answer = hub.ask(target="b", text="x", within=2)
    assert "why" in answer
    # One of them comes in CellNet's parts, which are nothing of ours whatever they hold.
    words = ("it holds objects, and only bytes are accepted", "it is neither a request nor a reply of this consortium")
    acting.until(lambda: sum(hub.told()["refused"]["b"].get(one, 0) for one in words) >= len(OBJECTS))
    assert hub.made_objects() == 0
    assert hub.ask(target="a", size=100)["same"]
    assert good.made_objects() == 0


def test_a_site_reaches_no_other_and_speaks_for_no_other(traitor: tuple[Any, Any, Any]) -> None:
    hub, good, bad = traitor
    assert bad.throw(kind="forward", victim="a") != "ok"
    bad.throw(kind="unasked answer")
    assert bad.throw(kind="another's name", victim="a") != "ok"
    reasons = (
        "it is addressed to someone else",
        "it answers no pending request, or too late",
        "it claims to come from someone else",
    )
    acting.until(lambda: set(reasons) <= hub.told()["refused"]["b"].keys())
    assert good.told()["heard"] == []


def test_nobody_is_made_to_connect_elsewhere(traitor: tuple[Any, Any, Any]) -> None:
    hub, _, bad = traitor
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(1)
        bad.throw(kind="connect elsewhere", victim="c", port=trap.getsockname()[1])
        with pytest.raises(TimeoutError):
            trap.accept()
    assert hub.told()["refused"]["b"]


def test_a_bad_coordinator_makes_no_objects_at_a_site_and_gets_no_memory(stage: Any, folder: str) -> None:
    hub, site, port = stage.actor(), stage.actor(), acting.free_port()
    hub.bare(name="hub", port=port, folder=folder, hub=True)
    site.watch_decoding()
    site.start(name="a", port=port, folder=folder)
    acting.until(lambda: "a" in hub.arrived())
    for kind in OBJECTS:
        hub.throw(kind=kind, target="a")
    assert site.made_objects() == 0
    before = site.size()["bytes"]
    for size in (2**31, 2**31 + 1, 2**40):  # the largest message, and larger ones
        hub.announce(size=size, target="a")
    # An answer to the last means that it has looked at all of them.
    acting.until(lambda: len(hub.pieces()) == 3)
    assert hub.pieces() == ["invalid_request", "invalid_request", "wr_missing"]
    assert site.size()["bytes"] - before < 40 * MB
