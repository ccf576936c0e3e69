"""What a round costs the coordinator's process with hundreds of sites: its CPU time, its threads, its memory.

    python -m benchmarks.many_sites [--sites 500] [--rounds 10] [--processes 4]

Sites are simulated: each has its own certificate and connection over mutual TLS, and answers at once with an update of
the model's shape; many of them share a process. The coordinator is the real one: it writes its audit log, sends, waits,
checks every answer and averages. Prints one JSON line.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.thin_lines import issue
from wardround.core.contracts import Message, Task
from wardround.deploy.coordinator.engine import Deployment
from wardround.deploy.coordinator.gather import Gatherer, WaitPolicy
from wardround.deploy.demo import demo_study, free_port, make_coordinator
from wardround.deploy.protocol.replies import reply_to
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import decode
from wardround.deploy.transport.cellnet import Credentials, Party
from wardround.deploy.transport.cellnet_transport import CellNetTransport
from wardround.deploy.transport.site_register import SiteRegister
from wardround.study import assemble
from wardround.study.methods import own_method

TASK = Task((13,), ("0", "1"))


def names_of(count: int) -> list[str]:
    return [f"site-{number:03d}" for number in range(count)]


def be_sites(folder: Path, port: int, names: list[str]) -> None:
    """All of these, until the end of the process."""

    def answer(name: str) -> Any:
        def respond(_: str, content: bytes) -> bytes:
            header, message = decode(content)
            told: dict[str, Any] = {}
            if "params" in message.arrays:
                update = jax.tree.map(np.zeros_like, message.arrays["params"])
                told = {"update": update, "weight": np.float32(10)}
            return reply_to(header, name, {"status": Status.OK}, Message(told))

        return respond

    for name in names:
        files = Credentials(folder / "authority.pem", folder / f"{name}.pem", folder / f"{name}.key")
        party = Party(name, f"127.0.0.1:{port}", files, server_name="coordinator")
        for topic in ("begin", "round"):
            party.answer(topic, answer(name))
        party.start()
    threading.Event().wait()


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--sites", type=int, default=500)
    words.add_argument("--rounds", type=int, default=10)
    words.add_argument("--processes", type=int, default=4)
    words.add_argument("--be", nargs="+")
    given = words.parse_args()
    if given.be:
        be_sites(Path(given.be[0]), int(given.be[1]), given.be[2:])
        return
    names = names_of(given.sites)
    with tempfile.TemporaryDirectory() as place:
        home = make_coordinator(Path(place) / "coordinator", free_port())
        for name in names:
            issue(home.path, name)
        files = Credentials(home.authority_path, home.certificate_path, home.key_path)
        hub = Party("coordinator", home.settings.listen, files)
        hub.start()
        port = home.settings.listen.rpartition(":")[2]
        crowd = [names[start :: given.processes] for start in range(given.processes)]
        program = [sys.executable, "-m", "benchmarks.many_sites", "--be", str(home.path), port]
        others = [subprocess.Popen([*program, *some]) for some in crowd]
        try:
            started = time.monotonic()
            while len(hub.present) < given.sites:
                time.sleep(0.1)
                if time.monotonic() - started > 300:
                    raise SystemExit(f"only {len(hub.present)} of {given.sites} sites connected")
            connected = time.process_time()
            measure(given.rounds, names, CellNetTransport(hub, SiteRegister(home, home.log())), connected)
        finally:
            for one in others:
                one.kill()
                one.wait()
    os._exit(0)


def measure(rounds: int, names: list[str], transport: CellNetTransport, connected: float) -> None:
    study = demo_study(1)
    algorithm, model = assemble.build(study, own_method(study), TASK, names), assemble.model_of(study, TASK)
    engine = Deployment(tuple(names), Gatherer("many", transport, WaitPolicy(len(names))), seed=1, task=TASK)
    progress = engine.begin(algorithm, model.init(jax.random.key(0)))
    everybody = np.arange(len(names))
    progress, _ = engine.train(algorithm, progress, [(1, everybody)])  # compiles, and begins at every site
    time.sleep(3)
    idle = time.process_time()
    time.sleep(5)
    idle = (time.process_time() - idle) / 5
    costs, walls = [], []
    for number in range(2, rounds + 2):
        cpu, wall = time.process_time(), time.monotonic()
        progress, [record] = engine.train(algorithm, progress, [(number, everybody)])
        assert record.count == len(names), record
        costs.append(time.process_time() - cpu)
        walls.append(time.monotonic() - wall)
    print(
        json.dumps(
            {
                "sites": len(names),
                "cpu_seconds_a_round": round(float(np.median(costs)), 3),
                "worst": round(max(costs), 3),
                "wall_seconds_a_round": round(float(np.median(walls)), 2),
                "idle_cpu_share": round(idle, 4),
                "cpu_until_all_connected": round(connected, 1),
                "threads": threading.active_count(),
                "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
