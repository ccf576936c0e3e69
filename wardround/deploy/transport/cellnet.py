"""The network between coordinator and sites: NVIDIA FLARE's CellNet, in our own processes.

Sites connect out to the coordinator over mutual TLS; the coordinator asks, sites answer. Only bytes travel, which
`deploy/protocol/wire.py` alone decodes, and `cellnet_filter.py` looks at every message before CellNet does. How a
question and its answer travel is in `transfers`. A request always has a deadline and is given up when its site goes
away; a connection that says nothing is noticed within 30 seconds. Only this room imports CellNet.
"""

import ctypes
import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before gRPC is loaded

from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.endpoint import EndpointState

from wardround.core.errors import Refusal
from wardround.deploy.protocol.outline import OutlinedMessage
from wardround.deploy.protocol.wire import LARGEST_MESSAGE, Malformed
from wardround.deploy.transport.cellnet_filter import SERVER, Gate, one_line
from wardround.deploy.transport.connectivity import check_free, diagnose, wait_until_listening
from wardround.deploy.transport.contract import Asked, Unanswered
from wardround.deploy.transport.transfers.exchange import Exchange, Movement, PeerLines
from wardround.deploy.transport.transfers.piece import PieceReply
from wardround.deploy.transport.transfers.receiver import Receiver
from wardround.deploy.trust.certificates import check_issued, read_certificate, read_key

MEMORY = {-8: 4, -3: 32 << 20, -1: 256 << 20}
"""glibc's numbers for how many heaps it may have (by default each of CellNet's threads gets its own), from which size
on it asks the system for memory each time, and how much it may keep: giving it back and getting it takes longer than
the copying."""
logger = logging.getLogger("wardround")
KEPT_OUT = (
    "the coordinator accepts the certificate, but not the connection; another process or machine "
    "may be connected with the same certificate. Fix: stop the other one, or wait a minute."
)
Handler = Callable[[str, bytes], bytes]
"""From the authenticated name of the asker and what it sent (bytes, or a view of them) to the answer."""
Lasts = Callable[[bytes], bool]
"""Whether the answer to a question may still leave: asked before each part of it."""
TICK = 0.5
"""Seconds between two looks at what takes too long."""
GOODBYE = 3.0
"""Seconds that the network has to close."""


class Credentials(NamedTuple):
    """Paths of the consortium's authority, and of one's own certificate and key."""

    authority: Path
    certificate: Path
    key: Path


class Party:
    """The coordinator (`listens`) or a site on the network."""

    def __init__(
        self, name: str, address: str, credentials: Credentials, *, server_name: str = "", folder: Path | None = None
    ) -> None:
        """`address` is HOST:PORT of the coordinator, `server_name` the name in its certificate (for a site).

        In `folder` transfers that take long are kept, so that they go on after a restart.
        """
        self.name, self.address, self.credentials, self.server_name = name, address, credentials, server_name
        self.listens = not server_name
        if address.startswith("["):
            raise Refusal("IPv6 addresses such as [::1] are not supported", where=address, remedy="use a host name")
        # CellNet checks its own certificate, too, but not in words for people.
        check_issued(
            read_certificate(credentials.certificate),
            read_certificate(credentials.authority),
            where=str(credentials.certificate),
        )
        read_key(credentials.key)
        own = (
            (DriverParams.SERVER_CERT, DriverParams.SERVER_KEY)
            if self.listens
            else (DriverParams.CLIENT_CERT, DriverParams.CLIENT_KEY)
        )
        files = {
            DriverParams.CA_CERT.value: str(credentials.authority),
            own[0].value: str(credentials.certificate),
            own[1].value: str(credentials.key),
            "connection_security": "mtls",
        }
        silence_loggers()
        limit_heaps()
        self._fqcn = SERVER if self.listens else name
        self._lock = threading.Lock()
        self._present: set[str] = set()
        self._exchanges: dict[str, dict[int, Exchange]] = {}
        self._peers: dict[str, PeerLines] = {}
        self._last: tuple[Any, OutlinedMessage] | None = None
        """The last question, which mostly goes to several."""
        self._folder = folder
        self._receiver = Receiver(folder)
        self._watchers: list[Callable[[str, bool], None]] = []
        self._trouble_listeners: list[Callable[[str], None]] = []
        self._after = 10.0
        self._stopped = threading.Event()
        self._events: queue.SimpleQueue[tuple[str, bool] | None] = queue.SimpleQueue()
        self._cell = Cell(
            fqcn=self._fqcn,
            root_url=f"grpc://{address}",
            secure=True,
            credentials=files,
            auth_identity_map=None if self.listens else {SERVER: server_name},
        )
        self._gate = Gate(self._cell, self._fqcn, listens=self.listens)
        self._cell.core_cell.communicator.register_monitor(self)
        if not self.listens:  # only the coordinator asks
            for topic in self._receiver.topics:
                self._respond_to(topic, partial(self._move_bytes, topic))

    def start(self) -> None:
        """Listen, or begin to connect and go on trying; refuses an address that cannot be listened at."""
        if self.listens:
            check_free(self.address)
        self._cell.start()
        works = (self._notify_watchers, self._check_exchanges if self.listens else self._report_trouble)
        for work in works:
            threading.Thread(target=work, name=f"wardround {work.__name__}", daemon=True).start()
        if self.listens:
            wait_until_listening(self.address)

    def stop(self) -> None:
        """Say goodbye and close; nothing is answered or asked afterwards."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        for one in self._pending():
            one.cancel("the coordinator is stopping")
        for name in self.present:
            self._gate.pieces.release(name)
        # CellNet waits for its own threads, one of which may be at work for an hour.
        closing = threading.Thread(target=self._cell.stop, daemon=True)
        closing.start()
        closing.join(GOODBYE)
        self._events.put(None)
        CoreCell.ALL_CELLS.pop(self._fqcn, None)

    @property
    def present(self) -> frozenset[str]:
        """Who is connected now."""
        with self._lock:
            return frozenset(self._present)

    @property
    def refused(self) -> dict[str, dict[str, int]]:
        """How often something was refused, by the certificate's name and the reason."""
        found: dict[str, dict[str, int]] = {}
        for (name, why), count in list(self._gate.refused.items()):
            found.setdefault(name, {})[why] = count
        return found

    def watch(self, watcher: Callable[[str, bool], None]) -> None:
        """Be told (name, whether it came) of everybody who comes or goes."""
        self._watchers.append(watcher)

    def on_trouble(self, hear: Callable[[str], None], *, after: float = 10.0) -> None:
        """Be told in plain words why a site has no connection, when it has had none for some seconds."""
        self._trouble_listeners.append(hear)
        self._after = after

    def why_absent(self) -> str:
        """Why there is no connection to the coordinator, as far as a try of our own can tell."""
        found = diagnose(self.address, self.credentials)
        return found.sentence if found.state == "wrong" else KEPT_OUT

    def answer(self, topic: str, handler: Handler, lasts: Lasts = lambda question: True) -> None:
        """Let `handler` answer requests of this topic; what it raises is told to the asker in one word only."""

        def respond(payload: Any, request: Any) -> PieceReply:
            origin = str(request.get_header(MessageHeaderKey.ORIGIN))
            return self._receiver.respond(payload, request.headers, lambda question: handler(origin, question), lasts)

        self._respond_to(topic, respond)

    def _move_bytes(self, topic: str, payload: Any, request: Any) -> PieceReply:
        return self._receiver.topics[topic](payload, request.headers)

    def _respond_to(self, topic: str, respond: Callable[[Any, Any], PieceReply]) -> None:
        def reply(request: Any) -> Any:
            try:
                found = respond(request.payload or b"", request)
            except Malformed as error:
                found = PieceReply(ReturnCode.INVALID_REQUEST, None, str(error))
            except Exception:
                origin = request.get_header(MessageHeaderKey.ORIGIN)
                logger.exception("a request from %s could not be answered", origin)
                found = PieceReply(ReturnCode.PROCESS_EXCEPTION, None, "the request could not be answered")
            return make_reply(found.code, error=found.error, body=found.payload)

        self._gate.pieces.responders[topic] = reply
        self._gate.answered.add(topic)

    def ask(self, target: str, topic: str, body: bytes, *, within: float, most: int = LARGEST_MESSAGE) -> bytes:
        """The answer; raises Unanswered when it took more than `within` seconds, or when the other side goes away.

        The time that bytes take on a line which moves does not count. What shrinks much is packed on its way; an
        answer that cannot be unpacked, or into more than `most` bytes, raises Malformed.
        """
        return self.begin(target, topic, body, within=within, most=most).result()

    def begin(self, target: str, topic: str, body: bytes, *, within: float, most: int = LARGEST_MESSAGE) -> Asked:
        """The same without waiting for it."""
        peer = self._peers.setdefault(target, PeerLines(self._folder))

        def send(topic: str, payload: Any, heard: Callable[[PieceReply | None], None], words: Mapping[str, Any]) -> Any:
            self._gate.asked.add(topic)
            number = pieces.ask(target, topic, payload, lambda reply: heard(piece_reply(reply)), **words)
            return lambda: pieces.forget(number)

        pieces = self._gate.pieces
        note = lambda why: self._gate.note(target, why)  # noqa: E731
        one = Exchange(target, topic, self._outlined(body), within, send=send, lines=peer, most=most, note=note)
        with self._lock:
            known = target in self._present and not self._stopped.is_set()
            if known:
                self._exchanges.setdefault(target, {})[id(one)] = one
        if not known:
            one.answer.set_exception(Unanswered(target, "it is not connected", gone=True))
            return one.answer
        number, answer = id(one), one.answer
        answer.add_done_callback(lambda _: self._forget(target, number))  # not by itself: it would stay in memory
        one.begin()
        return answer

    def _outlined(self, body: bytes) -> OutlinedMessage:
        last = self._last
        if last is None or last[0] is not body:
            last = self._last = body, OutlinedMessage(body)
        return last[1]

    def _forget(self, target: str, number: int) -> None:
        with self._lock:
            self._exchanges.get(target, {}).pop(number, None)

    def _pending(self) -> list[Exchange]:
        with self._lock:
            return [one for many in self._exchanges.values() for one in many.values()]

    def movements(self) -> dict[str, Movement]:
        """Transfers under way, by party."""
        found: dict[str, Movement] = {}
        for one in self._pending():
            if (moved := one.movement) is not None:
                found[one.target] = moved if one.target not in found else found[one.target].beside(moved)
        return found

    def speeds(self) -> dict[str, tuple[float, float]]:
        """Bytes in a second that the line of each party has shown, down and up; 0 where it has shown nothing yet."""
        return {name: (peer.down.rate, peer.up.rate) for name, peer in list(self._peers.items())}

    def lines(self, target: str) -> PeerLines:
        return self._peers.setdefault(target, PeerLines(self._folder))

    def state_change(self, endpoint: Any) -> None:
        """CellNet's word for somebody coming or going."""
        name, came = str(endpoint.name), endpoint.state == EndpointState.READY
        with self._lock:
            (self._present.add if came else self._present.discard)(name)
            pending = tuple(self._exchanges.get(name, {}).values())
        if came:
            for one in pending:
                one.resume()
        else:
            self._gate.pieces.release(name)
        self._events.put((name, came))

    def _check_exchanges(self) -> None:
        """Give up what takes too long; one thread for all."""
        while not self._stopped.wait(TICK):
            for one in self._pending():
                one.check()

    def _notify_watchers(self) -> None:
        """Tell the watchers, in a thread of their own: CellNet must not wait for them."""
        while (event := self._events.get()) is not None:
            for watcher in self._watchers:
                try:
                    watcher(*event)
                except Exception:
                    logger.exception("a watcher failed after a connection changed")

    def _report_trouble(self) -> None:
        said = ""
        while not self._stopped.wait(self._after):
            why = "" if SERVER in self.present else self.why_absent()
            if why and why != said and SERVER not in self.present and not self._stopped.is_set():
                logger.warning("not connected to %s: %s", self.address, why)
                for hear in self._trouble_listeners:
                    hear(why)
            said = why


def piece_reply(reply: Any) -> PieceReply | None:
    """What CellNet's message says."""
    if reply is None:
        return None
    code = str(reply.get_header(MessageHeaderKey.RETURN_CODE))
    payload = reply.payload if isinstance(reply.payload, bytes | bytearray | memoryview) else None
    return PieceReply(code, payload, one_line(reply.get_header(MessageHeaderKey.ERROR) or ""))


def limit_heaps() -> None:
    """Let messages use the same memory one after the other; glibc would keep a little more each round."""
    with suppress(OSError, AttributeError):  # another C library has its own ways
        for number, value in MEMORY.items():
            ctypes.CDLL(None).mallopt(number, value)


def silence_loggers() -> None:
    """CellNet's own words are for its developers; ours are told by the coordinator and the site."""
    for name in ("nvflare", "grpc", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
