"""A site or a coordinator, exactly as the command line starts them.

Run as a program it loads everything once and then forks a process for everybody who connects to its socket.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COORDINATOR = "coordinator"


def canary(seed: int) -> Any:
    """Eight numbers that nobody comes upon by chance."""
    import numpy as np

    return np.random.default_rng((seed, 0xCA4A)).uniform(1.0, 2.0, 8).astype(np.float32)


def plant(values: Any) -> None:
    """Let every answer of this site begin with these numbers."""
    from functools import lru_cache

    import jax

    from wardround.core.contracts import Message
    from wardround.deploy.site import study_worker

    method = study_worker.StudyWorker._method

    @lru_cache(maxsize=8)
    def planted(algorithm: Any) -> Any:
        def client(*given: Any) -> Any:
            answer, keeps = algorithm.client(*given)
            leaves, structure = jax.tree.flatten(answer.arrays["update"])
            largest = max(range(len(leaves)), key=lambda place: leaves[place].size)
            leaf = leaves[largest]
            leaves[largest] = leaf.ravel().at[: len(values)].set(values).reshape(leaf.shape)
            return Message({**answer.arrays, "update": jax.tree.unflatten(structure, leaves)}, answer.meta), keeps

        return algorithm._replace(client=client)

    def with_canary(self: Any, header: Any) -> Any:
        algorithm, *rest = method(self, header)
        return planted(algorithm), *rest

    study_worker.StudyWorker._method = with_canary


def fail_when_told(home: Path) -> None:
    """Let the coordinator stumble over something that nobody foresaw, as soon as there is a file `fault`."""
    from wardround.deploy.coordinator import service

    queued = service.queued_studies

    def stumble(there: Any) -> list[str]:
        if (home / "fault").exists():
            raise ZeroDivisionError("nobody foresaw this")
        return queued(there)

    service.queued_studies = stumble


def become(words: Mapping[str, Any], line: socket.socket) -> None:
    """Be a party until the end of the process."""
    import threading

    log = os.open(words["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    if "netns" in words:
        with open(f"/run/netns/{words['netns']}") as space:
            if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), 0):
                raise OSError(ctypes.get_errno(), "the network namespace cannot be entered")
    if "keepalive" in words:
        from wardround.deploy.transport.cellnet_filter import GRPC_DEFAULT_OPTIONS as OPTIONS

        # The deadlines of silence, in milliseconds: shorter ones for a test that has to wait for them.
        OPTIONS[:] = [(key, words["keepalive"] if "keepalive_t" in key else value) for key, value in OPTIONS]
    if "version" in words:
        from wardround.deploy.party import own_questions

        own_questions.__version__ = words["version"]
    if "protocol" in words:
        from wardround.deploy.protocol import wire

        wire.PROTOCOL = words["protocol"]
    if "plant" in words:
        plant(canary(words["plant"]))
    if words.get("halts"):
        from types import SimpleNamespace

        from wardround.deploy import fault_points

        # Stand still at a point instead of dying there, so that a test can look at all that the process holds.
        stop = lambda code: os.kill(os.getpid(), signal.SIGSTOP)  # noqa: E731
        fault_points.os = SimpleNamespace(environ=os.environ, _exit=stop)  # type: ignore[attr-defined]

    def obey() -> None:
        from wardround.deploy.fault_points import ASKED, arm

        with line.makefile("rw", encoding="utf-8") as file:
            for order in file:
                os.environ[ASKED] = order.strip()
                arm()
                file.write("\n")
                file.flush()

    threading.Thread(target=obey, daemon=True).start()
    if words["party"] == COORDINATOR:
        from wardround.cli.services import leave
        from wardround.cli.study_progress import listen
        from wardround.deploy.home import CoordinatorHome

        if words.get("faulty"):
            fail_when_told(Path(words["home"]))
        leave(listen(CoordinatorHome(Path(words["home"])), until_done=False))
    else:
        from wardround.cli.services import start_site

        start_site(Path(words["home"]))


def serve(path: Path) -> None:
    """Fork a party for everybody who connects."""
    import importlib

    for name in (
        "cli.coordinator",
        "cli.study_progress",
        "cli.services",
        "deploy.coordinator.service",
        "deploy.party.service",
        "deploy.site.request_handler",
    ):
        importlib.import_module(f"wardround.{name}")
    from wardround.engine import registry

    for kind in registry.kinds():
        registry.components(kind)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    unready = path.with_suffix(".unready")
    server.bind(str(unready))
    server.listen(64)
    unready.rename(path)  # whoever sees it can connect
    while True:
        line, _ = server.accept()
        words = b""
        while not words.endswith(b"\n"):
            words += line.recv(1 << 16)
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            line.sendall(f"{os.getpid()}\n".encode())
            try:
                become(json.loads(words), line)
            except BaseException:
                import traceback

                traceback.print_exc()
            os._exit(1)
        line.close()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
