"""A party that does what it is told line by line (JSON) until the line is cut.

Run as a program it loads the network once and then forks a process for everybody who connects to its socket.
"""

import json
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any


class Player:
    """What a process can be told to do."""

    party: Any = None

    def start(
        self, *, name: str, port: int, folder: str, file: str = "", hub: bool = False, after: float = 10.0, **more: Any
    ) -> bool:
        from wardround.deploy.transport.cellnet import Credentials, Party

        self.events: list[Any] = []
        self.worries: list[str] = []
        self.senders: list[str] = []
        place = Path(folder)
        files = Credentials(place / "authority.pem", place / f"{file or name}.pem", place / f"{file or name}.key")
        address = f"{more.get('host', '127.0.0.1')}:{port}"
        if "keepalive" in more:
            from nvflare.fuel.f3.drivers import grpc_driver

            options = grpc_driver.GRPC_DEFAULT_OPTIONS
            silence = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
            options[:] = [(key, more["keepalive"] if key in silence else value) for key, value in options]
        self.party = Party(name, address, files, server_name="" if hub else "hub")
        self.party.watch(lambda who, came: self.events.append([who, came]))
        self.party.on_trouble(self.worries.append, after=after)
        if not hub:
            self.party.answer("echo", self._echo)
            self.party.answer("slow", self._slow)
            self.party.answer("fail", lambda origin, body: b"" + 1)  # type: ignore[operator]
        self.party.start()
        return True

    def crowd(self, *, names: list[str], port: int, folder: str) -> bool:
        """Many sites in one process; each answers `echo`."""
        from wardround.deploy.transport.cellnet import Credentials, Party

        place = Path(folder)
        self.many = []
        for name in names:
            files = Credentials(place / "authority.pem", place / f"{name}.pem", place / f"{name}.key")
            one = Party(name, f"127.0.0.1:{port}", files, server_name="hub")
            one.answer("echo", lambda origin, body: body)
            one.start()
            self.many.append(one)
        return True

    def ask_together(self, *, targets: list[str], within: float = 60.0) -> int:
        """All at once, without a thread for each; gives the number of right answers."""
        asked = {name: self.party.begin(name, "echo", name.encode(), within=within) for name in targets}
        return sum(one.result() == name.encode() for name, one in asked.items())

    def _slow(self, _: str, body: bytes) -> bytes:
        time.sleep(float(body))
        return b"late"

    def _echo(self, origin: str, body: bytes) -> bytes:
        self.senders.append(origin)
        return body

    def ask(
        self,
        *,
        target: str,
        topic: str = "echo",
        size: int = 0,
        text: str = "",
        within: float = 20.0,
        most: int = 1 << 31,
    ) -> Any:
        from wardround.deploy.transport.contract import Unanswered

        body = os.urandom(size) if size else text.encode()
        started = time.monotonic()
        try:
            answer = self.party.ask(target, topic, body, within=within, most=most)
        except Unanswered as error:
            return {"why": error.why, "gone": error.gone, "seconds": time.monotonic() - started}
        return {"same": answer == body, "size": len(answer), "seconds": time.monotonic() - started}

    def ask_all(self, *, targets: list[str], times: int = 1, size: int = 100) -> int:
        """So many rounds of asking everybody at once; gives the number of answers that were right."""
        from concurrent.futures import ThreadPoolExecutor

        def one(target: str) -> bool:
            body = os.urandom(size)
            return bool(self.party.ask(target, "echo", body, within=60) == body)

        with ThreadPoolExecutor(len(targets)) as pool:
            return sum(sum(pool.map(one, targets)) for _ in range(times))

    def present(self) -> list[str]:
        return sorted(self.party.present)

    def told(self) -> dict[str, Any]:
        return {"events": self.events, "worries": self.worries, "heard": self.senders, "refused": self.party.refused}

    def stop(self) -> float:
        started = time.monotonic()
        self.party.stop()
        return time.monotonic() - started

    def size(self) -> dict[str, int]:
        import gc

        import psutil

        gc.collect()
        process = psutil.Process()
        return {"bytes": process.memory_info().rss, "threads": process.num_threads()}

    def watch_decoding(self) -> bool:
        """Note whenever CellNet makes objects from a payload, whoever lets it."""
        from nvflare.fuel.utils import fobs

        self.decoded = 0
        loads = fobs.loads

        def counted(*given: Any, **more: Any) -> Any:
            self.decoded += 1
            return loads(*given, **more)

        fobs.loads = counted
        return True

    def made_objects(self) -> int:
        return self.decoded

    def bare(
        self, *, name: str, port: int, folder: str, file: str = "", hub: bool = False, answers: str = "bytes"
    ) -> bool:
        """A cell of CellNet's without any of our care: the coordinator or a site as an attacker, or as FLARE has it."""
        from nvflare.fuel.f3.cellnet import cell as cell_module
        from nvflare.fuel.f3.cellnet import core_cell as core_module
        from nvflare.fuel.f3.cellnet.cell import Cell
        from nvflare.fuel.f3.cellnet.utils import decode_payload, make_reply

        cell_module.decode_payload = core_module.decode_payload = decode_payload
        side = "server" if hub else "client"
        place = Path(folder)
        self.cell = Cell(
            fqcn="server" if hub else name,
            root_url=f"grpc://127.0.0.1:{port}",
            secure=True,
            credentials={
                "ca_cert": str(place / "authority.pem"),
                f"{side}_cert": str(place / f"{file or name}.pem"),
                f"{side}_key": str(place / f"{file or name}.key"),
                "connection_security": "mtls",
            },
            auth_identity_map=None if hub else {"server": "hub"},
        )
        self.came: list[str] = []
        self.replies: list[str] = []
        core, take = self.cell.core_cell, self.cell.core_cell.process_message

        def note(endpoint: Any, connection: Any, app_id: int, message: Any) -> None:
            if message.headers.get("cn__msg_type") == "reply" and message.headers.get("cn__channel") == "wardround":
                self.replies.append(str(message.headers.get("cn__return_code")))
            take(endpoint, connection, app_id, message)

        core.process_message = note
        self.cell.core_cell.set_cell_connected_cb(lambda agent: self.came.append(agent.get_fqcn()))
        self.cell.register_request_cb(
            channel="wardround",
            topic="echo",
            cb=lambda request: make_reply("ok", body={"an": "object"} if answers == "objects" else request.payload),
        )
        self.cell.start()
        return True

    def arrived(self) -> list[str]:
        return self.came

    def throw(self, *, kind: str, target: str = "server", victim: str = "b", port: int = 0) -> str:
        """One of the attacks that a connected party can try; gives what came back."""
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
        from nvflare.fuel.f3.message import Message

        core, objects = self.cell.core_cell, {"a": {"dictionary": [1, 2]}}
        claims = {
            "another's name": {Key.ORIGIN: victim},
            "connect elsewhere": {Key.ORIGIN: victim, Key.CONN_URL: f"tcp://127.0.0.1:{port}"},
        }
        if kind in claims:
            core.add_outgoing_request_filter("*", "*", lambda request: request.add_headers(claims[kind]))
        if kind == "bulk":
            core.queue_message("wardround", "echo", target, Message({}, b"x"))
            core.bulk_senders[target].send()
            return "sent"
        if kind == "unasked answer":
            self.piece(target, "echo", "reply", b"y")
            return "sent"
        given = {
            "object": ("wardround", "echo", objects),  # straight to the core cell, in CellNet's own encoding
            "object on a strange channel": ("anything", "at all", objects),
            "certificate": ("credential_manager", "key_exchange", {"cert_content": b"x"}),
            "object in parts": ("wardround", "echo", objects),
            "forward": ("wardround", "echo", b"x"),
            "another's name": ("wardround", "echo", b"x"),
            "connect elsewhere": ("wardround", "echo", b"x"),
        }
        channel, topic, payload = given[kind]
        in_parts = kind in ("object in parts", "forward")
        send = self.cell.send_request if in_parts else core.send_request
        words = {"channel": channel, "topic": topic, "target": victim if kind == "forward" else target}
        reply = send(**words, request=Message({}, payload), timeout=0.6)
        return str(reply.get_header(Key.RETURN_CODE))

    def coordinate(self, *, home: str) -> bool:
        """The coordinator's whole process instead of a party alone."""
        from wardround.deploy.coordinator.service import Coordinator
        from wardround.deploy.home import CoordinatorHome

        self.coordinator = Coordinator(CoordinatorHome(Path(home)))
        self.coordinator.start()
        return True

    def members(self) -> list[str]:
        return sorted(self.coordinator.transport.present())

    def asked(self, *, target: str) -> Any:
        from wardround.deploy.transport.contract import Unanswered

        try:
            return {"same": self.coordinator.transport.ask(target, "echo", b"body", 10.0) == b"body"}
        except Unanswered as error:
            return {"why": error.why, "gone": error.gone}

    def announce(self, *, size: int, target: str = "server") -> bool:
        """The outline of a question that claims to be so many bytes long."""
        from wardround.deploy.protocol.outline import ENTRY, NAME, OUTLINE

        self.piece(target, "parts/expect", "req", OUTLINE + struct.pack("<I", 1) + ENTRY.pack(bytes(NAME), size))
        return True

    def pieces(self) -> list[str]:
        """What came back to pieces, in one word each."""
        return sorted(self.replies)

    def piece(self, target: str, topic: str, kind: str, payload: bytes) -> None:
        """A piece as our own parties send them."""
        from nvflare.fuel.f3.cellnet.core_cell import CoreCell
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
        from nvflare.fuel.f3.endpoint import Endpoint

        own = self.cell.core_cell.my_info.fqcn
        headers = {
            Key.CHANNEL: "wardround",
            Key.TOPIC: topic,
            Key.REQ_ID: "x",
            Key.MSG_TYPE: kind,
            Key.ORIGIN: own,
            Key.FROM_CELL: own,
            Key.DESTINATION: target,
            Key.PAYLOAD_ENCODING: "bytes",
        }
        manager = self.cell.core_cell.communicator.conn_manager
        manager.send_message(Endpoint(target), CoreCell.APP_ID, headers, payload)


def play(line: socket.socket) -> None:
    player = Player()
    with line, line.makefile("rw", encoding="utf-8") as file:
        file.write(json.dumps({"pid": os.getpid()}) + "\n")
        file.flush()
        for order in file:
            words = json.loads(order)
            what = words.pop("do")
            if what == "end":  # leave as a program does that reached its last line
                return
            try:
                told = {"value": getattr(player, what)(**words)}
            except Exception as error:
                told = {"error": f"{type(error).__name__}: {error}"}
            file.write(json.dumps(told) + "\n")
            file.flush()
    os._exit(0)


def main() -> None:
    # Once, for all who are forked.
    from nvflare.fuel.f3.communicator import load_comm_drivers

    import wardround.deploy.transport.cellnet  # noqa: F401

    load_comm_drivers()

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(sys.argv[1])
        door.listen(64)
        while True:
            line, _ = door.accept()
            if os.fork() == 0:
                door.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                play(line)
                sys.exit(0)
            line.close()


if __name__ == "__main__":
    main()
