"""Between the connections and CellNet: lets pass what the coordinator and the sites need, and nothing else.

CellNet forwards messages, makes objects from them and connects where it is told; a site that turned bad could use all
of that against the others. So a gate looks at every message first: it must come from whom its certificate names, be
meant for us, hold bytes, and be a question we answer or the answer to a question we asked. CellNet's settings and the
few of its functions that are replaced are here too, for the version that pyproject.toml names.
"""

import logging
import os
import threading
import time
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before gRPC is loaded

from nvflare.fuel.f3.cellnet import cell as cell_module
from nvflare.fuel.f3.cellnet import core_cell as core_module
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    Encoding,
    MessageHeaderKey,
    MessageType,
)
from nvflare.fuel.f3.cellnet.utils import decode_payload
from nvflare.fuel.f3.comm_config import CommConfigurator
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers import grpc_driver
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.grpc import streamer_pb2_grpc
from nvflare.fuel.f3.drivers.grpc_driver import GRPC_DEFAULT_OPTIONS
from nvflare.fuel.f3.sfm import conn_manager
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection

from wardround.core.text import plain_line
from wardround.deploy.transport.cellnet_frames import Frame, FrameQueue
from wardround.deploy.transport.cellnet_server import LoopServer
from wardround.deploy.transport.cellnet_small import CHANNEL, LARGEST_PIECE, SmallMessages

MEGABYTE = 1 << 20
SETTINGS = {
    "ALLOW_ADHOC_CONNS": "false",
    "USE_AIO_GRPC": "false",
}
os.environ.update({f"NVFLARE_{key}": str(value) for key, value in SETTINGS.items()})
SERVER = "server"
"""CellNet's name for the party that listens."""
KEEPALIVE = 10_000
"""Milliseconds of silence after which a connection is asked whether it still lives; it has 15 s to answer."""
SECOND_JOIN = 3.0
"""Seconds in which a connection must prove that it lives before a second one of the same name takes its place."""
GRPC_DEFAULT_OPTIONS[:] = [
    ("grpc.max_send_message_length", 2 * MEGABYTE),
    ("grpc.max_receive_message_length", 2 * MEGABYTE),
    ("grpc.http2.max_frame_size", MEGABYTE // 4),  # not 16 kB: fewer and larger steps for a model
    ("grpc.so_reuseport", 0),  # a second coordinator at the same address is a mistake, and must be told
    ("grpc.keepalive_time_ms", KEEPALIVE),
    ("grpc.keepalive_timeout_ms", 15_000),
    ("grpc.http2.ping_timeout_ms", 15_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE // 2),
    ("grpc.max_reconnect_backoff_ms", 3_000),
    ("grpc.use_local_subchannel_pool", 1),  # a new try must not inherit the patience of the one that failed
]
conn_manager.MAX_WAIT = 3
PLAIN = (None, Encoding.BYTES, Encoding.NONE)
NOT_OURS = (
    MessageHeaderKey.SECURE,  # CellNet's own encryption fetches certificates as objects
    MessageHeaderKey.ENCRYPTED,
    MessageHeaderKey.CONN_URL,  # would make us connect to an address of the sender's choice
    MessageHeaderKey.PASS_THROUGH,
    MessageHeaderKey.SERVER_TRANSIT_REQUIRED,
)
STRANGE = "it is neither a request nor a reply of this consortium"
LATE = "it answers no pending request, or too late"
logger = logging.getLogger("wardround")


class Gate:
    """Stands before one cell; what it refuses is counted by the certificate's name and the reason."""

    def __init__(self, cell: Any, own: str, *, listens: bool) -> None:
        self.cell, self.own, self.listens = cell, own, listens
        self.answered: set[str] = set()
        self.asked: set[str] = set()
        self.refused: dict[tuple[str, str], int] = {}
        core, self.manager = cell.core_cell, cell.core_cell.communicator.conn_manager
        self.pieces = SmallMessages(self.manager, own)
        self._process, core.process_message = core.process_message, self.process
        self._admit, self.manager.update_endpoint = self.manager.update_endpoint, self.admit
        self._leave, self.manager.close_connection = self.manager.close_connection, self.leave
        self._meet, self.manager.handle_new_connection = self.manager.handle_new_connection, self.meet
        # CellNet notes coming and going in two threads, and can lose a return that overtakes a departure.
        self._joining = threading.RLock()

    def process(self, endpoint: Any, connection: Any, app_id: int, message: Any) -> None:
        """In place of CoreCell.process_message, which decodes and forwards."""
        try:
            why = self.objection(endpoint.name, connection, message)
        except Exception:
            why = "its headers are invalid"
        if why:
            self.note(self.expected_name(connection) or "someone without a name", why)
        elif message.headers[MessageHeaderKey.CHANNEL] == CHANNEL:
            self.pieces.take(endpoint.name, message)
        else:
            self._process(endpoint, connection, app_id, message)

    def note(self, name: str, why: str) -> None:
        """Count what was refused; only the first of a kind is logged, so that nobody can fill the disk."""
        key = (name, why)
        self.refused[key] = self.refused.get(key, 0) + 1
        if self.refused[key] == 1:
            logger.warning("refused from %s: %s", name, why)

    def objection(self, name: str, connection: Any, message: Any) -> str:
        """Why a message must not be looked at; empty if it may."""
        headers = message.headers
        checks = (
            (name != self.expected_name(connection), "its certificate is for another name"),
            (headers.get(MessageHeaderKey.ORIGIN) != name, "it claims to come from someone else"),
            (headers.get(MessageHeaderKey.FROM_CELL) != name, "it claims to come from someone else"),
            (headers.get(MessageHeaderKey.DESTINATION) != self.own, "it is addressed to someone else"),
            (any(headers.get(key) for key in NOT_OURS), "it uses features reserved for FLARE's own messages"),
            (
                headers.get(MessageHeaderKey.PAYLOAD_ENCODING) not in PLAIN,
                "it holds objects, and only bytes are accepted",
            ),
        )
        headers[MessageHeaderKey.ROUTE] = [(name, time.time())]  # CellNet keeps statistics by what stands there
        return next((why for wrong, why in checks if wrong), "") or self.objection_to_kind(name, message)

    def objection_to_kind(self, name: str, message: Any) -> str:
        """The same for what a message is: a piece of a question or an answer, or a goodbye."""
        headers = message.headers
        kind = headers.get(MessageHeaderKey.MSG_TYPE)
        where = (headers.get(MessageHeaderKey.CHANNEL), headers.get(MessageHeaderKey.TOPIC))
        if where[0] == CHANNEL:
            return self.objection_to_piece(name, where[1], kind, message)
        bye = where == (CellChannel.CELLNET, CellChannelTopic.Bye) and kind in (MessageType.REQ, MessageType.REPLY)
        return "" if bye and not message.payload else STRANGE

    def objection_to_piece(self, name: str, topic: Any, kind: Any, message: Any) -> str:
        """The same for a piece: somebody asks what we answer, or answers what we asked."""
        number = message.headers.get(MessageHeaderKey.REQ_ID)
        if not isinstance(number, str) or len(message.payload or b"") > LARGEST_PIECE:
            return STRANGE
        if kind == MessageType.REPLY:
            return "" if self.pieces.is_awaited(name, topic, number) else LATE
        if kind == MessageType.REQ and topic in self.answered:
            return ""
        if kind == MessageType.REQ:
            self.pieces.refuse(name, topic, number)
        return STRANGE

    def expected_name(self, connection: Any) -> str:
        """The only name that may be used on this connection."""
        if not self.listens:
            return SERVER  # TLS checked the server's name
        return str(connection.get_conn_properties().get(DriverParams.PEER_CN.value, ""))

    def admit(self, connection: Any, claims: Any) -> None:
        """In place of ConnManager.update_endpoint: the name must be the certificate's, to the letter."""
        name = claims.get(HandshakeKeys.ENDPOINT_NAME)
        if name != self.expected_name(connection.conn):
            # Never in its own words: whoever made up names would fill the memory, and the log, with them.
            self.note(self.expected_name(connection.conn), "it calls itself by another name")
            connection.conn.close()
            return
        with self._joining:
            self._admit(connection, claims)

    def leave(self, connection: Any) -> None:
        with self._joining:
            self._leave(connection)

    def meet(self, connection: Any) -> None:
        """In place of ConnManager.handle_new_connection: a second one of a name must wait until the first is dead."""
        if self.listens:
            name = self.expected_name(connection)
            for other in list(self.manager.sfm_conns.values()):
                if self.expected_name(other.conn) != name:
                    continue
                if self.is_alive(other):
                    self.note(name, "it is already connected from another process or machine")
                    connection.close()
                    return
                other.conn.close()
        self._meet(connection)

    def is_alive(self, connection: Any) -> bool:
        asked = time.time()
        try:
            connection.send_heartbeat(Types.PING)
        except Exception:
            return False
        while time.time() < asked + SECOND_JOIN and connection.get_name() in self.manager.sfm_conns:
            if connection.last_activity >= asked:
                return True
            time.sleep(0.02)
        return False


def one_line(thing: object) -> str:
    """What the other side said, fit to be shown: short, in one line."""
    return plain_line(thing, 300)


def only_bytes(message: Any, encoding_key: Any = MessageHeaderKey.PAYLOAD_ENCODING, fobs_ctx: Any = None) -> None:
    """In place of CellNet's decoder: its object encoding names classes to be made, so such a payload is refused."""
    if message.get_header(encoding_key) not in PLAIN:
        raise ValueError("only bytes are accepted")
    decode_payload(message, encoding_key, fobs_ctx=fobs_ctx)


def send_frame(connection: Any, prefix: Any, headers: Any, payload: Any) -> None:
    """In place of SfmConnection.send_frame, which copies what it sends into a buffer, and that into another."""
    told = connection.headers_to_bytes(headers) or b""
    payload = payload or b""
    prefix.length, prefix.header_len = PREFIX_LEN + len(told) + len(payload), len(told)
    prefix.sequence = connection.next_sequence()
    start = bytearray(PREFIX_LEN)
    prefix.to_buffer(start, 0)
    with connection.lock:
        connection.conn.send_frame((start, told, payload))


def queue_frame(connection: Any, pieces: Any) -> None:
    """In place of StreamConnection.send_frame: gRPC puts the pieces together when their turn comes."""
    grpc_driver.StreamConnection.seq_num += 1
    if connection.oq.closed:
        raise CommError(CommError.CLOSED, "the connection is closed")
    connection.oq.append(Frame(grpc_driver.StreamConnection.seq_num & 0x7FFFFFFF, pieces))


grpc_driver.Frame = streamer_pb2_grpc.Frame = Frame
grpc_driver.QQ, grpc_driver.Server = FrameQueue, LoopServer
SfmConnection.send_frame, grpc_driver.StreamConnection.send_frame = send_frame, queue_frame
cell_module.decode_payload = core_module.decode_payload = only_bytes
# CellNet would walk through the whole folder that it is started in, and obey a settings file that it finds there.
CommConfigurator._config_loaded = True
