"""The network between coordinator and sites: NVIDIA FLARE's CellNet, in our own processes.

Sites connect out to the coordinator over mutual TLS; the coordinator asks, sites answer. Only bytes travel, which
`deploy/protocol/wire.py` alone decodes, and `cellnet_filter.py` looks at every message before CellNet does. A request
always has a deadline and is given up at once when its site goes away; a connection that says nothing is noticed within
30 seconds. Only this room imports CellNet.
"""

import ctypes
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before gRPC is loaded

from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply, new_cell_message
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.endpoint import EndpointState
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey

from wardround.core.errors import Refusal
from wardround.deploy.protocol.compression import Content, pack, unpack
from wardround.deploy.protocol.wire import LARGEST_MESSAGE, Malformed
from wardround.deploy.transport.cellnet_filter import SERVER, Gate, abandon, forget, one_line
from wardround.deploy.transport.cellnet_small import CHANNEL, SMALL
from wardround.deploy.transport.connectivity import check_free, diagnose, wait_until_listening
from wardround.deploy.transport.contract import Unanswered
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
TOO_LARGE = "the answer is too large for a single message"


class Credentials(NamedTuple):
    """Paths of the consortium's authority, and of one's own certificate and key."""

    authority: Path
    certificate: Path
    key: Path


class AbortSignal:
    """Ends a wait of CellNet's: when it was cancelled, or for good after some seconds, whatever trickles in."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.cancelled = False

    @property
    def triggered(self) -> bool:
        return self.cancelled or time.monotonic() >= self._end


class Party:
    """The coordinator (`listens`) or a site on the network."""

    def __init__(self, name: str, address: str, credentials: Credentials, *, server_name: str = "") -> None:
        """`address` is HOST:PORT of the coordinator, `server_name` the name in its certificate (for a site)."""
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
        self._waiting: dict[str, set[AbortSignal]] = {}
        self._watchers: list[Callable[[str, bool], None]] = []
        self._trouble_listeners: list[Callable[[str], None]] = []
        self._large: set[tuple[str, str]] = set()
        """Whose answers to which topics are large: they are asked for in parts at once."""
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

    def start(self) -> None:
        """Listen, or begin to connect and go on trying; refuses an address that cannot be listened at."""
        if self.listens:
            check_free(self.address)
        self._cell.start()
        for work in (self._notify_watchers, *(() if self.listens else (self._report_trouble,))):
            threading.Thread(target=work, name=f"wardround {work.__name__}", daemon=True).start()
        if self.listens:
            wait_until_listening(self.address)

    def stop(self) -> None:
        """Say goodbye and close; nothing is answered or asked afterwards."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        for name in self.present:
            self._release(name)
        self._cell.stop()
        for name in {*self.present, *self._waiting}:
            self._release(name)
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

    def answer(self, topic: str, handler: Handler) -> None:
        """Let `handler` answer requests of this topic; what it raises is told to the asker in one word only."""

        def respond(request: Any) -> Any:
            origin = str(request.get_header(MessageHeaderKey.ORIGIN))
            try:
                body = pack(handler(origin, cast(bytes, unpack(request.payload or b""))))
            except Malformed as error:
                return make_reply(ReturnCode.INVALID_REQUEST, error=str(error))
            except Exception:
                logger.exception("a request from %s could not be answered", origin)
                return make_reply(ReturnCode.PROCESS_EXCEPTION, error="the request could not be answered")
            if len(body) > SMALL and not request.get_header(StreamHeaderKey.STREAM_REQ_ID):
                return make_reply(ReturnCode.MSG_TOO_BIG, error=TOO_LARGE)
            return make_reply(ReturnCode.OK, body=body)

        self._gate.pieces.responders[topic] = respond
        self._gate.answered.add(topic)
        self._cell.register_request_cb(channel=CHANNEL, topic=topic, cb=respond)

    def ask(self, target: str, topic: str, body: bytes, *, within: float) -> bytes:
        """The answer; raises Unanswered after `within` seconds, or at once when the other side goes away.

        What shrinks much is packed on its way; one that cannot be unpacked, or into more bytes than its topic's limit,
        raises Malformed.
        """
        patience = AbortSignal(within)
        with self._lock:
            if target not in self._present:
                raise Unanswered(target, "it is not connected", gone=True)
            self._waiting.setdefault(target, set()).add(patience)
        self._gate.asked.add(f"{CHANNEL}:{topic}")
        try:
            reply = self._exchange(target, topic, pack(body), within, patience)
        except Exception as error:  # of the network's many kinds; none of them is the caller's mistake
            raise Unanswered(target, f"connection lost ({one_line(error)})") from None
        finally:
            with self._lock:
                self._waiting[target].discard(patience)
        forget(target, reply.get_header(StreamHeaderKey.STREAM_ID))
        code = reply.get_header(MessageHeaderKey.RETURN_CODE)
        answer: Any = b"" if reply.payload is None else reply.payload
        if code == ReturnCode.OK and isinstance(answer, bytes | bytearray | memoryview):
            most = self._gate.largest.get(f"{CHANNEL}:{topic}", LARGEST_MESSAGE)
            return cast(bytes, unpack(answer, most=most))  # or a view of them: a model is not copied once more
        if patience.cancelled or target not in self.present:
            raise Unanswered(target, "it disconnected before it answered", gone=True)
        if patience.triggered:
            raise Unanswered(target, f"it did not answer within {within:.0f} s")
        raise Unanswered(target, one_line(reply.get_header(MessageHeaderKey.ERROR) or code))

    def limit(self, topic: str, most: int) -> None:
        """Receive no answer to this topic that has more than so many bytes."""
        self._gate.largest[f"{CHANNEL}:{topic}"] = most

    def _exchange(self, target: str, topic: str, body: Content, within: float, patience: AbortSignal) -> Any:
        """CellNet's reply: in one piece where question and answer are small, which takes it a third of the time."""
        words = {"channel": CHANNEL, "topic": topic, "target": target, "timeout": within}
        if len(body) <= SMALL and (target, topic) not in self._large:
            reply = self._gate.pieces.ask(target, topic, body, within)
            if reply.get_header(MessageHeaderKey.RETURN_CODE) != ReturnCode.MSG_TOO_BIG:
                return reply
            self._large.add((target, topic))  # the same question gets the same answer, so asking again is harmless
        # CellNet's own time-out counts anew with every byte of progress; patience ends it for good.
        return self._cell.send_request(request=new_cell_message({}, body), abort_signal=patience, **words)

    def state_change(self, endpoint: Any) -> None:
        """CellNet's word for somebody coming or going."""
        name, came = str(endpoint.name), endpoint.state == EndpointState.READY
        with self._lock:
            (self._present.add if came else self._present.discard)(name)
        if not came:
            self._release(name)
        self._events.put((name, came))

    def _release(self, name: str) -> None:
        """Let nobody wait for one who is gone, neither those who asked nor CellNet's own threads."""
        with self._lock:
            for patience in self._waiting.get(name, ()):
                patience.cancelled = True
        self._gate.pieces.release(name)
        abandon(name)

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


def limit_heaps() -> None:
    """Let messages use the same memory one after the other; glibc would keep a little more each round."""
    with suppress(OSError, AttributeError):  # another C library has its own ways
        for number, value in MEMORY.items():
            ctypes.CDLL(None).mallopt(number, value)


def silence_loggers() -> None:
    """CellNet's own words are for its developers; ours are told by the coordinator and the site."""
    for name in ("nvflare", "grpc", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
