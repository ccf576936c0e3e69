"""The network between coordinator and sites: NVIDIA FLARE's CellNet, in our own processes. Nothing else imports it.

Sites connect out to the coordinator over mutual TLS; the coordinator asks, sites answer. Only bytes travel, which
`deploy/wire.py` alone decodes: payloads in CellNet's own encoding are refused before anything reads them. A request
always has a deadline and is given up at once when its site goes away.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet import cell as cell_module
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import Encoding, MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import decode_payload, make_reply, new_cell_message
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.private.fed.utils.fed_utils import fobs_initialize

CHANNEL = "wardround"
SERVER = "server"
"""CellNet's name for the party that listens."""
Handler = Callable[[str, bytes], bytes]
"""From the authenticated name of the asker and what it sent to the answer."""


class Unanswered(Exception):
    """A request that got no answer: `gone` when the site went away, else it was late or the line broke."""

    def __init__(self, target: str, why: str, *, gone: bool = False) -> None:
        super().__init__(why)
        self.target, self.why, self.gone = target, why, gone


class Credentials(NamedTuple):
    """Paths of the consortium's authority, and of one's own certificate and key."""

    authority: Path
    certificate: Path
    key: Path


class Party:
    """The coordinator (`listens`) or a site on the network."""

    def __init__(self, name: str, address: str, credentials: Credentials, *, server_name: str = "") -> None:
        """`address` is HOST:PORT of the coordinator, `server_name` the name in its certificate (for a site)."""
        self.name = name
        self.listens = not server_name
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
        quiet()
        fobs_initialize()
        self._lock = threading.Lock()
        self._present: set[str] = set()
        self._waiting: dict[str, set[Signal]] = {}
        self._watchers: list[Callable[[str, bool], None]] = []
        self._cell = Cell(
            fqcn=SERVER if self.listens else name,
            root_url=f"grpc://{address}",
            secure=True,
            credentials=files,
            auth_identity_map=None if self.listens else {SERVER: server_name},
        )
        self._cell.core_cell.set_cell_connected_cb(self._came)
        self._cell.core_cell.set_cell_disconnected_cb(self._went)

    def start(self) -> None:
        self._cell.start()

    def stop(self) -> None:
        self._cell.stop()

    @property
    def present(self) -> frozenset[str]:
        """Who is connected now."""
        with self._lock:
            return frozenset(self._present)

    def watch(self, watcher: Callable[[str, bool], None]) -> None:
        """Be told (name, whether it came) of everybody who comes or goes."""
        self._watchers.append(watcher)

    def answer(self, topic: str, handler: Handler) -> None:
        """Let `handler` answer requests of this topic; what it raises is told to the asker in one word only."""

        def respond(request: Any) -> Any:
            origin = str(request.get_header(MessageHeaderKey.ORIGIN))
            try:
                body = handler(origin, bytes(request.payload or b""))
            except Exception:
                logging.getLogger("wardround").exception("a request of %s could not be answered", origin)
                return make_reply(ReturnCode.PROCESS_EXCEPTION, error="the request could not be answered")
            return make_reply(ReturnCode.OK, body=body)

        self._cell.register_request_cb(channel=CHANNEL, topic=topic, cb=respond)

    def ask(self, target: str, topic: str, body: bytes, *, within: float) -> bytes:
        """The answer; raises Unanswered after `within` seconds, or at once when the other side goes away."""
        signal = Signal()
        with self._lock:
            if self.listens and target not in self._present:
                raise Unanswered(target, "it is not connected", gone=True)
            self._waiting.setdefault(target, set()).add(signal)
        timer = threading.Timer(within, signal.trigger, (True,))
        timer.daemon = True
        started = time.monotonic()
        timer.start()
        try:
            # CellNet's own time-out counts anew with every byte of progress; the timer ends it for good.
            reply = self._cell.send_request(
                channel=CHANNEL,
                topic=topic,
                target=target,
                request=new_cell_message({}, body),
                timeout=within,
                abort_signal=signal,
            )
        finally:
            timer.cancel()
            with self._lock:
                self._waiting[target].discard(signal)
        code = reply.get_header(MessageHeaderKey.RETURN_CODE)
        if code == ReturnCode.OK and isinstance(reply.payload, bytes | bytearray | memoryview):
            return bytes(reply.payload)
        if target not in self.present:
            raise Unanswered(target, "it went away before it answered", gone=True)
        if time.monotonic() - started >= within:
            raise Unanswered(target, f"it did not answer within {within:.0f} s")
        raise Unanswered(target, str(reply.get_header(MessageHeaderKey.ERROR) or code))

    def _came(self, endpoint: Any) -> None:
        self._changed(endpoint.get_fqcn(), came=True)

    def _went(self, endpoint: Any) -> None:
        self._changed(endpoint.get_fqcn(), came=False)

    def _changed(self, name: str, *, came: bool) -> None:
        with self._lock:
            (self._present.add if came else self._present.discard)(name)
            pending = () if came else tuple(self._waiting.get(name, ()))
        for signal in pending:
            signal.trigger(True)
        for watcher in self._watchers:
            watcher(name, came)


def only_bytes(message: Any, encoding_key: Any = MessageHeaderKey.PAYLOAD_ENCODING, fobs_ctx: Any = None) -> None:
    """In place of CellNet's decoder: its object encoding names classes to be made, so such a payload is refused."""
    if message.get_header(encoding_key) == Encoding.FOBS:
        raise ValueError("only bytes are accepted")
    decode_payload(message, encoding_key, fobs_ctx=fobs_ctx)


cell_module.decode_payload = only_bytes


def quiet() -> None:
    """CellNet's own words are for its developers; ours are told by the coordinator and the site."""
    for name in ("nvflare", "grpc", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
