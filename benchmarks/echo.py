"""What a round over the network costs beyond moving its bytes: three sites in their own processes, mutual TLS.

    python -m benchmarks.echo [4k 26m] [--rounds 10]

For every size: `bare`, FLARE's own cell that sends the bytes to each site and gets them back; `party`, the same
through our network (gate, deadlines, checks); `round`, a whole round of a study whose model has that size: from the
server's state to the server's next state, with what both sides write down and wait for, and the site's training. The
first two are measured before and after the third, half of the times each.
`pace` is from one round to the next: it has the coordinator's checkpoint and record, too, but no evaluation.

`training` is what the site's half takes when three processes do it at the same time, as in a round (the slowest of
them, since a round waits for it), without any network or file; `alone` is the same with one process. Where every site
has a machine of its own the two are the same. The figure to reach is (round - training) / bare <= 1.2; medians.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from wardround.deploy.demo import free_port
from wardround.deploy.trust.certificates import make_authority, make_request, new_key, pem, sign

SITES = ("a", "b", "c")
SIZES = {"4k": 4_096, "26m": 26_000_000}
HIDDEN = {"4k": [70], "26m": [2_500, 2_500]}
"""Widths that make a model of about that many bytes."""
ROWS = 60


def consortium(folder: Path) -> None:
    make_authority(folder, "echo")
    for name in ("hub", *SITES):
        key = new_key(folder / f"{name}.key")
        hosts = ("localhost", "127.0.0.1") if name == "hub" else ()
        request = make_request(key, name, "coordinator" if hosts else "site")
        (folder / f"{name}.pem").write_bytes(pem(sign(folder, request, hosts=hosts)))


def bare(name: str, port: int, folder: Path) -> Any:
    """A cell as FLARE makes it."""
    from nvflare.fuel.f3.cellnet.cell import Cell
    from nvflare.fuel.f3.cellnet.utils import make_reply

    side = "server" if name == "hub" else "client"
    files = {"ca_cert": folder / "authority.pem", f"{side}_cert": folder / f"{name}.pem"}
    files[f"{side}_key"] = folder / f"{name}.key"
    cell = Cell(
        fqcn="server" if name == "hub" else name,
        root_url=f"grpc://127.0.0.1:{port}",
        secure=True,
        credentials={**{key: str(path) for key, path in files.items()}, "connection_security": "mtls"},
        auth_identity_map=None if name == "hub" else {"server": "hub"},
    )
    cell.register_request_cb(
        channel="echo", topic="echo", cb=lambda request: make_reply("ok", body=bytes(request.payload))
    )
    cell.start()
    return cell


def party(name: str, port: int, folder: Path) -> Any:
    from wardround.deploy.transport.cellnet import Credentials, Party

    files = Credentials(folder / "authority.pem", folder / f"{name}.pem", folder / f"{name}.key")
    made = Party(name, f"127.0.0.1:{port}", files, server_name="" if name == "hub" else "hub")
    if name != "hub":
        made.answer("echo", lambda origin, body: body)
    made.start()
    return made


def serve(kind: str, name: str, port: int, folder: Path) -> None:
    """A site's process: echoes until its input ends."""
    made = (bare if kind == "bare" else party)(name, port, folder)
    print("ready", flush=True)
    sys.stdin.read()
    made.stop()
    os._exit(0)


def hub(kind: str, port: int, folder: Path) -> None:
    """The coordinator's process: told a size and a number of rounds, it gives the seconds of each."""
    made = (bare if kind == "bare" else party)("hub", port, folder)
    ask = asking(kind, made)
    for line in sys.stdin:
        size, rounds = json.loads(line)
        body, seconds = os.urandom(size), []
        for _ in range(rounds):
            started = time.perf_counter()
            everyone(ask, body)
            seconds.append(time.perf_counter() - started)
        print(json.dumps(seconds), flush=True)
    made.stop()
    os._exit(0)


def asking(kind: str, made: Any) -> Callable[[str, bytes], bytes]:
    if kind == "party":
        while len(made.present) < len(SITES):
            time.sleep(0.02)
        return lambda site, body: bytes(made.ask(site, "echo", body, within=120))
    from nvflare.fuel.f3.cellnet.utils import new_cell_message

    while not all(made.core_cell.is_cell_connected(site) for site in SITES):
        time.sleep(0.02)

    def ask(site: str, body: bytes) -> bytes:
        words = {"channel": "echo", "topic": "echo", "target": site, "timeout": 120}
        return bytes(made.send_request(request=new_cell_message({}, body), **words).payload)

    return ask


def everyone(ask: Callable[[str, bytes], bytes], body: bytes) -> None:
    answers: list[bytes] = []
    threads = [threading.Thread(target=lambda site=site: answers.append(ask(site, body))) for site in SITES]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(answers) == len(SITES)
    assert all(len(answer) == len(body) for answer in answers)


@contextmanager
def echoing(kind: str, folder: Path) -> Iterator[Callable[[int, int], list[float]]]:
    port = free_port()
    me = [sys.executable, "-m", "benchmarks.echo"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    own = subprocess.Popen([*me, "--hub", kind, str(port), str(folder)], text=True, **pipes)
    sites = [
        subprocess.Popen([*me, "--site", kind, name, str(port), str(folder)], text=True, **pipes) for name in SITES
    ]
    try:
        for site in sites:
            assert site.stdout is not None
            site.stdout.readline()

        def measured(size: int, rounds: int) -> list[float]:
            assert own.stdin is not None
            assert own.stdout is not None
            own.stdin.write(json.dumps([size, rounds]) + "\n")
            own.stdin.flush()
            seconds: list[float] = json.loads(own.stdout.readline())
            return seconds

        yield measured
    finally:
        for process in (own, *sites):
            process.kill()
            process.communicate()


def study_of(size: str, rounds: int) -> Any:
    from wardround.deploy.demo import PURPOSE
    from wardround.study.file import parse_study

    words = {
        "study": {"name": f"echo-{size}", "seed": 1, "rounds": rounds, "purpose": PURPOSE},
        "data": {"source": "csv", "target": "y", "task": "classification", "preparation": {"smallest_cell": 10}},
        "model": {"name": "mlp", "hidden": HIDDEN[size]},
        "algorithm": {"name": "fed_sgd", "learning_rate": 0.001},
        "evaluation": {"every": rounds, "resamples": 10},
        "deploy": {"deadline": 300.0},
    }
    return parse_study(words, where="the benchmark's study")


def rounds_of(size: str, folder: Path, rounds: int) -> tuple[list[dict[str, Any]], list[float]]:
    """The records of a study over real processes, and the seconds from the beginning of a round to the next one's."""
    import numpy as np
    import pandas as pd

    from wardround.deploy.coordinator.queue import enqueue
    from wardround.deploy.demo import make_coordinator, make_site, processes, watch
    from wardround.runs.read import read_rounds

    home = make_coordinator(folder / "hub", free_port())
    homes = {}
    for number, name in enumerate(SITES):
        generator = np.random.default_rng(number)
        frame = pd.DataFrame(generator.normal(size=(ROWS, 10)), columns=[f"x{i}" for i in range(10)])
        frame["y"] = np.where(np.arange(ROWS) % 2, "yes", "no")
        frame.to_csv(folder / f"{name}.csv", index=False)
        homes[name] = make_site(folder / name, name, home, folder / f"{name}.csv")
    (folder / "logs").mkdir()
    study = enqueue(home, study_of(size, rounds), "benchmark")
    commands = {"hub": ["coordinator", "start", "--home", str(home.path)]}
    commands |= {name: ["site", "start", "--home", str(one.path)] for name, one in homes.items()}
    with processes(commands, folder / "logs") as running:
        watch(home, homes, study, running, lambda word, facts: None)
    records, _ = read_rounds(home.folder(study) / "run")
    entries = [json.loads(line)["entry"] for line in home.audit_path.read_text(encoding="utf-8").splitlines()]
    begun = [one["time"] for one in entries if one.get("topic") == "round" and one["to"] == SITES[0]]
    times = [datetime.fromisoformat(one).timestamp() for one in begun]
    paces = [after - before for before, after in pairwise(times)]
    return records, paces


def train(size: str) -> None:
    """A process that does one site's half of a round of that study for every line that it is given."""
    import jax
    import numpy as np

    from wardround.core.chain import identity
    from wardround.core.contracts import Message, Task
    from wardround.engine.split_round import OwnRows, site_round
    from wardround.study import assemble
    from wardround.study.methods import own_method

    study, task = study_of(size, 1), Task((10,), ("no", "yes"), "y")
    algorithm = assemble.build(study, own_method(study), task, SITES)
    params = assemble.model_of(study, task).init(jax.random.key(0))
    sent: Message = jax.device_get(algorithm.broadcast(algorithm.init(params, len(SITES))))
    rows = int(0.6 * ROWS)
    own = OwnRows(np.zeros((rows, 10), np.float32), np.arange(rows, dtype=np.int32) % 2, 0)
    kept = algorithm.init_client(params)
    for line in sys.stdin:
        started = time.perf_counter()
        answer, _, _ = site_round(algorithm, identity(), sent, kept, own, seed=1, number=int(line))
        jax.block_until_ready(answer.arrays)
        print(time.perf_counter() - started, flush=True)


def training(size: str, processes: int, times: int) -> float:
    """The slowest of so many processes that train at the same time."""
    me = [sys.executable, "-m", "benchmarks.echo", "--train", size]
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"}  # as `spawned` has it
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment}
    running = [subprocess.Popen(me, text=True, **pipes) for _ in range(processes)]
    seconds = []
    try:
        for number in range(1, times + 2):
            for one in running:
                assert one.stdin is not None
                one.stdin.write(f"{number}\n")
                one.stdin.flush()
            seconds.append(max(float(one.stdout.readline()) for one in running if one.stdout is not None))
    finally:
        for one in running:
            one.kill()
            one.communicate()
    return median(seconds[1:])


def measure(size: str, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "keys").mkdir()
        consortium(folder / "keys")
        times: dict[str, list[float]] = {"bare": [], "party": []}
        with echoing("bare", folder / "keys") as first, echoing("party", folder / "keys") as second:

            def echoes() -> None:
                for number in range(rounds // 2 + 1):  # in turn, so that a busy machine meets both alike
                    for kind, measured in (("bare", first), ("party", second)):
                        times[kind] += measured(SIZES[size], 1)[:number]  # the first is to get warm

            echoes()
            records, paces = rounds_of(size, folder, rounds + 1)
            records, paces = records[1:], paces[1:]
            echoes()
    alone, together = training(size, 1, rounds), training(size, len(SITES), rounds)
    echo, own = median(times["bare"]), median(one["seconds"] for one in records)
    return {
        "size": size,
        "bytes": records[-1]["bytes_down"] // len(SITES),
        "bare": round(echo, 4),
        "party": round(median(times["party"]), 4),
        "round": round(own, 4),
        "pace": round(median(paces), 4),
        "training": round(together, 4),
        "alone": round(alone, 4),
        "party / bare": round(median(times["party"]) / echo, 2),
        "(round - training) / bare": round((own - together) / echo, 2),
        "(round - alone) / bare": round((own - alone) / echo, 2),
    }


def main() -> None:
    if sys.argv[1:2] == ["--site"]:
        return serve(sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
    if sys.argv[1:2] == ["--train"]:
        return train(sys.argv[2])
    if sys.argv[1:2] == ["--hub"]:
        return hub(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    for size in given.sizes:
        print(json.dumps(measure(size, given.rounds)), flush=True)
    return None


if __name__ == "__main__":
    main()
