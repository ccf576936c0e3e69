"""How long a message takes over a slow line, as a multiple of what the line itself needs.

A coordinator and a site over mutual TLS, the site in a network namespace of its own behind a line of a given speed (`tc
tbf` in both directions), which may be cut every so many seconds. Needs root, `ip` and `tc`. Prints one JSON line.

    python -m benchmarks.thin_lines --megabytes 26 --kilobits 1000
    python -m benchmarks.thin_lines --megabytes 1 --kilobits 64 --cut 30
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wardround.deploy.transport.cellnet import Credentials, Party
from wardround.deploy.transport.contract import Unanswered
from wardround.deploy.trust.certificates import make_authority, make_request, new_key, pem, sign

HERE, THERE = "10.251.11.1", "10.251.11.2"
BURST = 16
"""Kilobytes that the line takes at once."""


def issue(folder: Path, name: str, hosts: tuple[str, ...] = ()) -> Credentials:
    key = new_key(folder / f"{name}.key")
    request = make_request(key, name, "coordinator" if hosts else "site")
    (folder / f"{name}.pem").write_bytes(pem(sign(folder, request, hosts=hosts)))
    return Credentials(folder / "authority.pem", folder / f"{name}.pem", folder / f"{name}.key")


@contextmanager
def slow_network(kilobits: int) -> Iterator[str]:
    """A network namespace behind a line of this speed; gives its name."""
    space, here, there = f"wr{os.getpid()}", f"wh{os.getpid()}", f"wt{os.getpid()}"
    shape = f"root tbf rate {kilobits}kbit burst {BURST}kb latency 500ms"
    commands = [
        f"ip netns add {space}",
        f"ip link add {here} type veth peer name {there}",
        f"ip link set {there} netns {space}",
        f"ip addr add {HERE}/30 dev {here}",
        f"ip link set {here} up",
        f"ip -n {space} addr add {THERE}/30 dev {there}",
        f"ip -n {space} link set {there} up",
        f"ip -n {space} link set lo up",
        f"tc qdisc add dev {here} {shape}",
        f"ip netns exec {space} tc qdisc add dev {there} {shape}",
    ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        yield space
    finally:
        subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", here], check=False, capture_output=True)


class CutLine:
    """Forwards connections and cuts all of them every so many seconds."""

    def __init__(self, port: int, seconds: float) -> None:
        self._target, self._pairs = port, set[socket.socket]()
        self._door = socket.create_server((HERE, 0))
        self.port, self.cuts = int(self._door.getsockname()[1]), 0
        threading.Thread(target=self._serve, daemon=True).start()
        threading.Thread(target=self._cut, args=(seconds,), daemon=True).start()

    def _serve(self) -> None:
        while True:
            near, _ = self._door.accept()
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
            with suppress(OSError):
                far = socket.create_connection((HERE, self._target))
                self._pairs |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(16384):
                sink.sendall(part)
        for one in (source, sink):
            with suppress(OSError):
                one.close()

    def _cut(self, seconds: float) -> None:
        while True:
            time.sleep(seconds)
            self.cuts += 1
            for one in list(self._pairs):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self._pairs.clear()


def be_site(folder: Path, port: int) -> None:
    files = Credentials(folder / "authority.pem", folder / "site.pem", folder / "site.key")
    party = Party("site", f"{HERE}:{port}", files, server_name="hub", folder=folder / "transfers")
    party.answer("down", lambda _, body: str(len(body)).encode())
    party.answer("up", lambda _, body: stored(folder, int(bytes(body))))
    party.start()
    threading.Event().wait()


def stored(folder: Path, size: int) -> bytes:
    path = folder / "answer"
    if not path.exists():
        path.write_bytes(os.urandom(size))
    return path.read_bytes()


def seconds_of(hub: Party, topic: str, body: bytes) -> float:
    """Asked as a coordinator does: again, when the site was gone."""
    started = time.monotonic()
    while True:
        try:
            hub.ask("site", topic, body, within=60.0)
            return time.monotonic() - started
        except Unanswered as error:
            print(f"  {time.monotonic() - started:.0f} s: {error}", file=sys.stderr)
            time.sleep(0.5)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--megabytes", type=float, default=26)
    words.add_argument("--kilobits", type=int, default=1000)
    words.add_argument("--cut", type=float, default=0.0)
    words.add_argument("--ways", nargs="+", default=["down", "up"])
    words.add_argument("--site", nargs=2)
    given = words.parse_args()
    if given.site:
        be_site(Path(given.site[0]), int(given.site[1]))
        return
    size = int(given.megabytes * 1e6)
    with tempfile.TemporaryDirectory() as place, slow_network(given.kilobits) as space:
        folder = Path(place)
        make_authority(folder, "thin")
        issue(folder, "site")
        with socket.create_server((HERE, 0)) as probe:
            port = int(probe.getsockname()[1])
        hub = Party("hub", f"{HERE}:{port}", issue(folder, "hub", (HERE,)), folder=folder / "hub-transfers")
        hub.start()
        line = CutLine(port, given.cut) if given.cut else None
        program = ["ip", "netns", "exec", space, sys.executable, "-m", "benchmarks.thin_lines"]
        site = subprocess.Popen([*program, "--site", str(folder), str(line.port if line else port)])
        try:
            while not hub.present:
                time.sleep(0.05)
            needs = size * 8 / (given.kilobits * 1000)
            found: dict[str, float] = {"bytes": size, "kilobits": given.kilobits, "line_seconds": round(needs, 1)}
            for way in given.ways:
                took = seconds_of(hub, way, os.urandom(size) if way == "down" else str(size).encode())
                found |= {f"{way}_seconds": round(took, 1), f"{way}_ratio": round(took / needs, 3)}
            print(json.dumps({**found, "cuts": line.cuts if line else 0}))
        finally:
            site.kill()
            site.wait()
    os._exit(0)


if __name__ == "__main__":
    main()
