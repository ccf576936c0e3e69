"""Parties in processes of their own, for the tests of the network.

`Stage` starts the program of `player`, `stage.actor()` gives one process of it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.support.processes import player
from wardround.deploy.trust.certificates import LASTS, make_authority, make_request, new_key, pem, sign

HOSTS = ("localhost", "127.0.0.1")


def consortium(folder: Path, *sites: str) -> Path:
    """A consortium's authority, its coordinator `hub`, and sites, all in one folder: NAME.pem and NAME.key."""
    folder.mkdir(parents=True, exist_ok=True)
    make_authority(folder, folder.name)
    issue(folder, "hub", HOSTS)
    for site in sites:
        issue(folder, site)
    return folder


def issue(
    folder: Path, name: str, hosts: tuple[str, ...] = (), *, file: str = "", lasts: timedelta = LASTS, **more: Any
) -> None:
    key = new_key(folder / f"{file or name}.key")
    request = make_request(key, name, "coordinator" if hosts else "site")
    (folder / f"{file or name}.pem").write_bytes(pem(sign(folder, request, hosts=hosts, lasts=lasts, **more)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait until something holds; gives it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


class Actor:
    """One process; `actor.ask(...)` and the like call the function of that name over there."""

    def __init__(self, path: Path) -> None:
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(str(path))
        self._file = self._line.makefile("rw", encoding="utf-8")
        self.pid = int(json.loads(self._file.readline())["pid"])

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**words: Any) -> Any:
            self.send(name, **words)
            return self.receive()

        return call

    def send(self, what: str, **words: Any) -> None:
        self._file.write(json.dumps({"do": what, **words}) + "\n")
        self._file.flush()

    def receive(self) -> Any:
        told = json.loads(self._file.readline() or '{"error": "the process is gone"}')
        if "error" in told:
            raise AssertionError(told["error"])
        return told["value"]

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def close(self) -> None:
        self._file.close()
        self._line.close()


class Stage:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "stage.socket"
        self._actors: list[Actor] = []
        self.log = folder / "stage.log"
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen([sys.executable, player.__file__, str(self._path)], stderr=log)
        until(self._path.exists, 120)

    def actor(self) -> Actor:
        actor = until(self._try, 30)
        self._actors.append(actor)
        return actor

    def _try(self) -> Actor | None:
        try:
            return Actor(self._path)
        except OSError:
            return None

    def close(self) -> None:
        for actor in self._actors:
            actor.close()
        self._process.terminate()
        self._process.wait()


@contextmanager
def stage_in(folder: Path) -> Iterator[Stage]:
    stage = Stage(folder)
    try:
        yield stage
    finally:
        stage.close()


class Play:
    """A coordinator and sites that are all connected."""

    def __init__(self, stage: Stage, folder: str, sites: str, **more: Any) -> None:
        self.stage, self.folder, self.port, self.more = stage, folder, free_port(), more
        self.hub = stage.actor()
        self.hub.start(name="hub", port=self.port, folder=folder, hub=True, **more)
        self.sites = {name: self.join(name) for name in sites}
        self.wait_for(*sites)

    def join(self, name: str, **more: Any) -> Any:
        actor = self.stage.actor()
        actor.start(name=name, port=self.port, folder=self.folder, **{**self.more, **more})
        return actor

    def wait_for(self, *names: str) -> None:
        until(lambda: self.hub.present() == sorted(names))
