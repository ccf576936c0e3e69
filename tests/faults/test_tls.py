"""Who must not get in, and what must not get through: each tried for real, over sockets on loopback.

No certificate, another consortium's, another's name, expired, revoked, old TLS, plain text, replay, tampering. Where an
attack could fail for a reason of its own, a control shows that the same connection works untouched.
"""

import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import stage as acting
from wardround.core.errors import Refusal
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.transport.connectivity import PREFACE, diagnose, refuse_other_server

pytest.importorskip("nvflare", reason="the network needs wardround[deploy]")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stage forks")
LONG_AGO = datetime.now(UTC) - timedelta(days=60)
SHORT = timedelta(days=30)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with acting.stage_in(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = acting.consortium(tmp_path_factory.mktemp("ours"), "a", "b")
    acting.issue(place, "b", file="ended", now=LONG_AGO, lasts=SHORT)
    return str(place)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another consortium, with a site of the same name; and its certificates beside our authority."""
    return acting.consortium(tmp_path_factory.mktemp("theirs"), "a", "b")


@pytest.fixture(scope="module")
def play(stage: Any, folder: str) -> Any:
    """Our coordinator and site a, who is there all the time and must stay undisturbed."""
    return acting.Play(stage, folder, "a")


@pytest.fixture(autouse=True)
def undisturbed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "play" in request.fixturenames:
        play = request.getfixturevalue("play")
        assert play.hub.present() == ["a"]
        assert play.hub.ask(target="a", size=100)["same"]


def context(authority: Path, own: Path | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority))
    made.set_alpn_protocols(["h2"])
    if own is not None:
        made.load_cert_chain(str(own.with_suffix(".pem")), str(own.with_suffix(".key")))
    return made


def spoken_to(port: int, made: ssl.SSLContext) -> bytes:
    """What the coordinator says to a client of HTTP/2; nothing, or an error, when it refuses."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as line,
        made.wrap_socket(line, server_hostname="localhost") as secure,
    ):
        secure.sendall(PREFACE)
        return bytes(secure.recv(9))


# ---- certificates ----


def test_a_member_is_spoken_to(play: Any, folder: str) -> None:
    """The control for all that follow: with our certificate the coordinator answers."""
    assert spoken_to(play.port, context(Path(folder) / "authority.pem", Path(folder) / "a"))


def test_no_certificate(play: Any, folder: str) -> None:
    try:
        said = spoken_to(play.port, context(Path(folder) / "authority.pem"))
    except (ssl.SSLError, ConnectionError):
        said = b""
    assert said == b"", "it spoke to a stranger"


def test_a_foreign_certificate(play: Any, folder: str, foreign: Path) -> None:
    """gRPC would only go on trying; our own try tells why."""
    found = diagnose(f"127.0.0.1:{play.port}", (Path(folder) / "authority.pem", foreign / "b.pem", foreign / "b.key"))
    assert "rejected this site's certificate" in found.sentence
    assert "this coordinator signed the certificate" in found.sentence


def test_an_ended_certificate(play: Any, folder: str) -> None:
    place = Path(folder)
    found = diagnose(f"127.0.0.1:{play.port}", (place / "authority.pem", place / "ended.pem", place / "ended.key"))
    assert "rejected this site's certificate" in found.sentence
    assert "has not expired" in found.sentence


def test_a_member_reaches_the_coordinator(play: Any, folder: str) -> None:
    """The control for the two before."""
    place = Path(folder)
    assert diagnose(f"127.0.0.1:{play.port}", (place / "authority.pem", place / "a.pem", place / "a.key")).state == "ok"


def test_a_coordinator_of_another_name_is_told(play: Any, folder: str) -> None:
    """TLS checks the host and who signed; the name that the site was given is ours to check."""
    place, address = Path(folder), f"127.0.0.1:{play.port}"
    files = (place / "authority.pem", place / "a.pem", place / "a.key")
    refuse_other_server(address, files, "hub")
    with pytest.raises(Refusal, match="is for 'hub', but this party expects 'hubb'"):
        refuse_other_server(address, files, "hubb")
    refuse_other_server(f"127.0.0.1:{acting.free_port()}", files, "hubb")  # nobody there: not judged


def test_an_ended_or_foreign_certificate_is_not_even_started_with(stage: Any, play: Any, folder: str) -> None:
    with pytest.raises(AssertionError, match=r"Refusal: The certificate expired on 20.*sign a new request"):
        stage.actor().start(name="b", file="ended", port=play.port, folder=folder)


def test_a_site_of_another_consortium(stage: Any, play: Any, foreign: Path) -> None:
    site = stage.actor()
    site.start(name="b", port=play.port, folder=str(foreign), after=0.5)
    acting.until(lambda: site.told()["worries"])
    assert "was not signed by this consortium's authority" in site.told()["worries"][-1]
    assert site.present() == []
    site.kill()


def test_a_coordinator_of_another_consortium(stage: Any, foreign: Path, folder: str) -> None:
    theirs = acting.Play(stage, str(foreign), "")
    site = stage.actor()
    site.start(name="a", port=theirs.port, folder=folder, after=0.5)
    acting.until(lambda: site.told()["worries"])
    assert "was not signed by this consortium's authority" in site.told()["worries"][-1]
    assert (site.present(), theirs.hub.present()) == ([], [])


def test_a_coordinator_whose_certificate_has_ended(tmp_path: Path) -> None:
    """Ours would not start; what listens here is a plain server of TLS with that certificate."""
    place = acting.consortium(tmp_path / "old", "a")
    acting.issue(place, "hub", acting.HOSTS, file="ended", now=LONG_AGO, lasts=SHORT)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(str(place / "ended.pem"), str(place / "ended.key"))
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            line, _ = door.accept()
            with line, suppress(OSError):
                made.wrap_socket(line, server_side=True)

        threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.1:{door.getsockname()[1]}"
        found = diagnose(address, (place / "authority.pem", place / "a.pem", place / "a.key"))
    assert "the coordinator's certificate has expired by this machine's clock" in found.sentence


def test_a_coordinator_found_under_a_name_that_is_not_its_own(stage: Any, tmp_path: Path) -> None:
    place = acting.consortium(tmp_path / "elsewhere", "a")
    acting.issue(place, "hub", ("hub.example.org",), file="elsewhere")
    hub, site, port = stage.actor(), stage.actor(), acting.free_port()
    hub.start(name="hub", port=port, folder=str(place), file="elsewhere", hub=True)
    site.start(name="a", port=port, folder=str(place), after=0.5)
    acting.until(lambda: site.told()["worries"])
    assert "is not for the name '127.0.0.1'" in site.told()["worries"][-1]
    assert (site.present(), hub.present()) == ([], [])


def test_a_site_cannot_pose_as_the_coordinator(stage: Any, folder: str) -> None:
    """Its certificate is the consortium's, but not a server's."""
    poser, site, port = stage.actor(), stage.actor(), acting.free_port()
    poser.bare(name="b", port=port, folder=folder, hub=True)
    site.start(name="a", port=port, folder=folder, after=0.5)
    acting.until(lambda: site.told()["worries"])
    assert (site.present(), poser.arrived()) == ([], [])


@pytest.mark.parametrize("claim", ["a", "hub", "b.child", "nobody"])
def test_a_certificate_cannot_be_used_under_another_name(stage: Any, play: Any, folder: str, claim: str) -> None:
    """It is counted under the certificate's name and in our words: made-up names fill neither memory nor log."""

    def refused() -> int:
        return play.hub.told()["refused"].get("b", {}).get("it calls itself by another name", 0)

    thief, before = stage.actor(), refused()
    thief.bare(name=claim, file="b", port=play.port, folder=folder)
    acting.until(lambda: refused() > before)
    assert play.hub.present() == ["a"]
    assert set(play.hub.told()["refused"]) <= {"a", "b"}
    thief.kill()


def test_a_revoked_site_gets_nothing_and_gives_nothing(stage: Any, folder: str, tmp_path: Path) -> None:
    """TLS still lets it connect: the coordinator does not ask it, does not count it, and answers nothing."""
    home, port = tmp_path / "home", acting.free_port()
    home.mkdir()
    place = Path(folder)
    for name, origin in (("authority.pem", "authority.pem"), ("certificate.pem", "hub.pem"), ("key.pem", "hub.key")):
        (home / name).write_bytes((place / origin).read_bytes())
    words = f'consortium = "ours"\nname = "hub"\nlisten = "127.0.0.1:{port}"\n'
    (home / "coordinator.toml").write_text(words, encoding="utf-8")
    hub = stage.actor()
    hub.coordinate(home=str(home))
    site = stage.actor()
    site.start(name="b", port=port, folder=folder)
    acting.until(lambda: hub.members() == ["b"])
    assert hub.asked(target="b")["same"]
    CoordinatorHome(home).write_revoked({"b": {"why": "its machine was stolen"}})
    assert hub.members() == []
    heard = len(site.told()["heard"])
    told = hub.asked(target="b")
    assert told["gone"]
    assert "revoked" in told["why"]
    assert len(site.told()["heard"]) == heard
    assert site.present() == ["server"], "it is connected, which is what makes this a test"


# ---- lines ----


def hello(version: bytes) -> bytes:
    """The first word of a TLS client that knows no version above this one (RFC 5246, 7.4.1.2)."""
    suites = bytes.fromhex("c02bc009c00ac013c014002f0035")
    extensions = (
        bytes.fromhex("000a000400020017")  # the curve P-256
        + bytes.fromhex("000b00020100")  # points uncompressed
        + bytes.fromhex("000d0006000404030401")  # ECDSA and RSA with SHA-256
        + bytes.fromhex("0010000500030268" + "32")  # HTTP/2
    )
    body = version + bytes(32) + b"\0" + struct.pack(">H", len(suites)) + suites + b"\1\0"
    body += struct.pack(">H", len(extensions)) + extensions
    message = b"\1" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


def answered(port: int, version: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as line:
        line.sendall(hello(version))
        return line.recv(100)


@pytest.mark.parametrize(("version", "name"), [(b"\3\1", "1.0"), (b"\3\2", "1.1")], ids=["1.0", "1.1"])
def test_old_tls(play: Any, version: bytes, name: str) -> None:
    """No handshake (record type 22) begins: an alert, or nothing."""
    assert answered(play.port, version)[:1] in (b"", b"\x15")


def test_tls_1_2_is_the_oldest_that_is_answered(play: Any) -> None:
    """The control: the same first word, but for the version, is answered by a handshake of version 1.2."""
    assert answered(play.port, b"\3\3")[:3] == b"\x16\3\3"


def test_plain_text(play: Any) -> None:
    with socket.create_connection(("127.0.0.1", play.port), 10) as line:
        line.sendall(PREFACE)
        answer = b""
        try:
            while part := line.recv(1000):
                answer += part
        except ConnectionResetError:
            pass
    assert answer[:1] in (b"", b"\x15"), "an alert, or nothing at all"


class Between:
    """A line between a site and the coordinator that keeps what the site sent, and may change it."""

    def __init__(self, port: int, change: Callable[[bytes, int], bytes] = lambda part, sent: part) -> None:
        self.recorded = b""
        self.cut = threading.Event()
        self._change, self._target = change, port
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
                far = socket.create_connection(("127.0.0.1", self._target), 10)
            except OSError:
                return
            threading.Thread(target=self._pump, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, outward: bool) -> None:
        sent = 0
        try:
            while part := source.recv(65536):
                if outward:
                    part = self._change(part, sent)
                    self.recorded += part
                sent += len(part)
                sink.sendall(part)
        except OSError:
            pass
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.cut.set()

    def close(self) -> None:
        self._door.close()


def test_a_replay_of_a_whole_connection(stage: Any, folder: str) -> None:
    """All that site b ever sent, sent again: TLS begins with fresh numbers on both sides, so it is noise."""
    scene = acting.Play(stage, folder, "")
    between = Between(scene.port)
    site = stage.actor()
    site.start(name="b", port=between.port, folder=folder)
    scene.wait_for("b")
    assert scene.hub.ask(target="b", size=1000)["same"]
    site.stop()
    scene.wait_for()
    events = len(scene.hub.told()["events"])
    with socket.create_connection(("127.0.0.1", scene.port), 10) as line:
        line.settimeout(3)
        try:
            line.sendall(between.recorded)
            while line.recv(65536):
                pass
        except (ConnectionError, TimeoutError):
            pass
    assert scene.hub.present() == []
    assert len(scene.hub.told()["events"]) == events
    between.close()


def test_one_changed_byte(stage: Any, folder: str) -> None:
    """The connection is dropped and the answer with it; nothing changed is ever handed on."""
    scene = acting.Play(stage, folder, "")
    armed = threading.Event()

    def change(part: bytes, sent: int) -> bytes:
        if not armed.is_set() or len(part) < 200:
            return part
        armed.clear()
        return part[:100] + bytes((part[100] ^ 1,)) + part[101:]

    between = Between(scene.port, change)
    site = stage.actor()
    site.start(name="b", port=between.port, folder=folder)
    scene.wait_for("b")
    assert scene.hub.ask(target="b", size=5000)["same"]
    armed.set()
    told = scene.hub.ask(target="b", size=5000, within=20)
    assert told.get("gone"), "the answer was lost with the connection"
    acting.until(between.cut.is_set)
    scene.wait_for("b")
    assert scene.hub.ask(target="b", size=5000)["same"], "and after it came back all is well"
    between.close()
