"""A consortium of real processes over mutual TLS whose parties can be killed, stopped, starved and started again.

The processes are forked by the program of `party`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.processes import party
from tests.support.processes.party import COORDINATOR

NAMES = ("bo", "freetown", "kenema")


def until(condition: Callable[[], Any], seconds: float = 60.0, what: str = "it") -> Any:
    """Wait until something holds; gives it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {seconds:.0f} s")


class Process:
    """One party; the line to it is cut when it dies."""

    def __init__(self, path: Path, words: Mapping[str, Any]) -> None:
        self._line = socket.socket(socket.AF_UNIX)
        try:
            self._line.connect(str(path))
            self.pid = int(self._call(json.dumps(words)))
        except BaseException:
            self._line.close()
            raise

    def _call(self, words: str) -> str:
        self._line.settimeout(60)
        self._line.sendall(words.encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            piece = self._line.recv(64)
            assert piece, "the process is gone"
            answer += piece
        self._line.setblocking(False)
        return answer.decode()

    def crash_at(self, point: str) -> None:
        """Let it die when it passes a point (NAME or NAME:3), from now on."""
        self._call(point)

    @property
    def dead(self) -> bool:
        try:
            return self._line.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def close(self) -> None:
        self._line.close()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        until(lambda: self.dead, 20, "a death")
        self.close()


class Consortium:
    """Homes, and a process for every party; `conduct` brings a study to its end."""

    def __init__(
        self, folder: Path, names: Sequence[str] = NAMES, host: str = "localhost", small: Sequence[str] = ()
    ) -> None:
        """`small` names parties whose home is on a small disk of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.names = folder, tuple(names)
        self.processes: dict[str, Process] = {}
        self._server: subprocess.Popen[bytes] | None = None
        self.small = {name: small_disk(folder / name) for name in small}
        try:
            self._make(folder, host)
        except BaseException:
            self.close()
            raise

    def _make(self, folder: Path, host: str) -> None:
        from wardround.deploy.demo import free_port, make_coordinator, make_site, write_patients

        self.home = make_coordinator(folder / COORDINATOR, free_port())
        if host != "localhost":
            listen_at(self.home, host)
        self.tables = write_patients(folder, self.names)
        self.homes = {name: make_site(folder / name, name, self.home, self.tables[name]) for name in self.names}
        self._socket = folder / "parties.socket"
        environment = {
            **os.environ,
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=1",
            "JAX_PLATFORMS": "cpu",
            # Whoever is started again would compile for seconds what another has compiled.
            "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR", str(folder / "compiled")),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "PYTHONWARNINGS": "ignore",
        }
        environment.pop("WARDROUND_CRASH_AT", None)
        with open(folder / "parties.log", "wb") as log:
            self._server = subprocess.Popen(
                [sys.executable, party.__file__, str(self._socket)], env=environment, stdout=log, stderr=log
            )
        until(self._socket.exists, 180, "the beginning")

    def start(self, *names: str, **words: Any) -> None:
        """Start parties, as the command line does; `words` may say netns, version, protocol or keepalive."""
        for name in names or (COORDINATOR, *self.names):
            if name in self.processes:
                self.processes.pop(name).close()
            log = self.folder / f"{name}.log"
            self.processes[name] = Process(
                self._socket, {"party": name, "home": str(self.folder / name), "log": str(log), **words}
            )

    def kill(self, name: str) -> None:
        self.processes.pop(name).kill()

    def fill(self, name: str) -> None:
        """Use up all the room on a party's small disk."""
        with suppress(OSError), open(self.folder / name / "filler", "wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                with suppress(OSError):
                    while True:
                        file.write(b"0" * size)

    def make_room(self, name: str) -> None:
        (self.folder / name / "filler").unlink()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def restart(self, name: str) -> None:
        if name in self.processes:
            self.kill(name)
        self.start(name)

    def connected(self, *names: str, seconds: float = 60.0) -> None:
        wanted = set(names or self.names)
        until(lambda: wanted <= set(self.status().get("present", ())), seconds, f"coming of {wanted}")

    def status(self) -> dict[str, Any]:
        return self.home.status()

    def queue(self, study: Any) -> str:
        from wardround.deploy.coordinator.queue import enqueue

        return enqueue(self.home, study, "researcher")

    def approve(self, study: str, names: Sequence[str] | None = None) -> None:
        """As administrators would; those who were not offered it yet are left alone."""
        from wardround.deploy.site.approvals import approve

        for name in self.names if names is None else names:
            home = self.homes[name]
            if (home.path / "offers" / f"{study}.json").exists() and not (
                home.path / "decisions" / f"{study}.json"
            ).exists():
                approve(home, study, by=f"admin-{name}")

    def run(self, study: str) -> Path:
        return self.home.folder(study) / "run"

    def state(self, study: str) -> dict[str, Any]:
        path = self.home.folder(study) / "state.json"
        return json.loads(path.read_bytes()) if path.exists() else {}

    def rounds(self, study: str) -> list[dict[str, Any]]:
        path = self.run(study) / "rounds.jsonl"
        content = path.read_bytes() if path.exists() else b""
        return [json.loads(line) for line in content.split(b"\n")[:-1]]

    def ended(self, study: str, seconds: float = 120.0, revive: bool = True) -> dict[str, Any]:
        """Wait for the end; whoever died meanwhile is started again, as an operating system's service would do it."""

        def look() -> dict[str, Any]:
            self.approve(study)
            for name, process in list(self.processes.items()):
                if revive and process.dead:
                    self.start(name)
            queue = self.home.path / "queue" / f"{study}.json"
            return {} if queue.exists() else self.state(study)

        return until(look, seconds, f"the end of {study}")

    def model(self, study: str) -> dict[str, bytes]:
        """Names, shapes and bits of the model."""
        from safetensors.numpy import load_file

        arrays = load_file(self.run(study) / "model.safetensors")
        return {f"{name} {array.dtype} {array.shape}": array.tobytes() for name, array in arrays.items()}

    def left(self, name: str, study: str) -> list[dict[str, Any]]:
        """What left a site for a study, by its audit log."""
        lines = self.homes[name].audit_path.read_bytes().splitlines()
        entries = [json.loads(line)["entry"] for line in lines]
        return [one for one in entries if one["kind"] == "sent" and one["study"] == study]

    def close(self) -> None:
        for process in self.processes.values():
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGKILL)
            process.close()
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        for name, mounted in self.small.items():
            if mounted:
                subprocess.run(["umount", "--lazy", str(self.folder / name)], check=False, capture_output=True)


@contextmanager
def consortium_in(folder: Path, **more: Any) -> Iterator[Consortium]:
    made = Consortium(folder, **more)
    try:
        yield made
    finally:
        made.close()


def small_disk(path: Path) -> bool:
    """Mount a small disk, if we may: room for the studies of the tests, and soon filled."""
    path.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=128m", "wardround-test", str(path)]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def listen_at(home: Any, host: str) -> None:
    """Let a coordinator listen at another address, under which its certificate knows it."""
    from wardround.deploy.trust.certificates import make_request, pem, sign

    path = home.path / "coordinator.toml"
    path.write_text(path.read_text().replace('"localhost:', f'"{host}:'))
    home.__dict__.pop("settings")  # read before
    request = make_request(home.key, "coordinator", "coordinator")
    home.certificate_path.unlink()
    home.certificate_path.write_bytes(pem(sign(home.path, request, hosts=("localhost", host))))


def study_of(name: str, rounds: int = 3, **tables: Mapping[str, Any]) -> Any:
    """The demonstration's study under another name, with other tables."""
    from wardround.deploy.demo import demo_study
    from wardround.study.file import parse_study

    words = demo_study(rounds).model_dump(mode="json", exclude_none=True)
    words["evaluation"] = {"resamples": 20}
    words["study"]["name"] = name
    for table, values in tables.items():
        words[table] = {**(words.get(table) or {}), **values}
    return parse_study(words, where="test")
