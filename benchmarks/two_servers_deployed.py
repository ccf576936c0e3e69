"""What two servers cost over real sites: `python -m benchmarks.two_servers_deployed` prints one JSON object.

A coordinator, three sites and a second server, each a process of its own, over mutual TLS on this machine. Two studies
with the same model (6.5 million parameters, 26 MB) and patients, one after the other: a plain one and one for two
servers; `ratio` is the median of the rounds' seconds of the second by that of the first, training included. The first
round of each compiles and is left out. `cpu_ratio` is the same for the processor seconds of all five processes, which
other work on the machine hardly changes; what follows the last round is in it for both.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from wardround.deploy.coordinator.consortium import admit
from wardround.deploy.coordinator.queue import enqueue
from wardround.deploy.demo import demo_study, free_port, make_coordinator, make_site, processes, write_patients
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.party.enrolment import join
from wardround.deploy.second.approvals import approve_as_second
from wardround.deploy.second.home import SecondHome, begin_second
from wardround.deploy.site.approvals import approve
from wardround.runs.json_files import read_json
from wardround.runs.read import read_rounds
from wardround.study.file import Study, parse_study

NAMES = ("bo", "freetown", "kenema")
PATIENCE = 600.0
MOST_TIMES = 3.0
"""The bar: times a plain round."""


def study_of(name: str, rounds: int, width: int, tables: Mapping[str, Any]) -> Study:
    words = demo_study(rounds).model_dump(mode="json", exclude_none=True)
    words["study"]["name"] = name
    words["model"] = {"name": "mlp", "hidden": [width, width]}
    words["algorithm"] = {"name": "fed_avg", "learning_rate": 0.01, "batch_size": 0}
    words["evaluation"] = {"resamples": 20, "every": rounds}
    return parse_study({**words, **tables}, where="benchmark")


def processor_seconds(pids: Sequence[int]) -> float:
    """Of these processes until now."""
    words = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in words) / os.sysconf("SC_CLK_TCK")


def conduct(
    home: CoordinatorHome, sites: Mapping[str, SiteHome], second: SecondHome, name: str, pids: Sequence[int]
) -> tuple[list[float], float]:
    """Approve a queued study everywhere and wait until it has ended; seconds of its rounds but the first, and
    processor seconds since then."""
    begun = None
    waiting: dict[str, Any] = {**sites, "second": second}
    end = time.monotonic() + PATIENCE
    while not (home.folder(name) / "state.json").exists():
        for one in [one for one, there in waiting.items() if (there.path / "offers" / f"{name}.json").exists()]:
            there = waiting.pop(one)
            (approve_as_second if one == "second" else approve)(there, name, by="administrator")
        if begun is None and read_rounds(home.folder(name) / "run")[0]:
            begun = processor_seconds(pids)
        if time.monotonic() > end:
            raise SystemExit(f"{name} did not end: {home.status()}")
        time.sleep(0.05)
    state = read_json(home.folder(name) / "state.json", "")
    if state["state"] != "finished":
        raise SystemExit(f"{name} {state['state']}: {state['why']}")
    spent = processor_seconds(pids) - (begun or 0.0)
    return [float(one["seconds"]) for one in read_rounds(home.folder(name) / "run")[0]][1:], spent


def measured(folder: Path, rounds: int, width: int) -> dict[str, Any]:
    home = make_coordinator(folder / "coordinator", free_port())
    tables = write_patients(folder, NAMES)
    sites = {name: make_site(folder / name, name, home, tables[name]) for name in NAMES}
    second = begin_second(folder / "second", "second", home.settings.listen, home.settings.name, "another organisation")
    request = folder / "second.csr"
    request.write_bytes(second.request_path.read_bytes())
    join(second, admit(home, request).path, home.authority_path)
    paired = {
        "aggregator": {"name": "multi_krum", "bad": 0, "keep": 2},
        "transforms": [{"name": "two_servers", "bound": 1024.0}],
        "deploy": {"second": "second"},
    }
    commands = {"coordinator": ["coordinator", "start", "--home", str(home.path)]}
    commands |= {name: ["site", "start", "--home", str(one.path)] for name, one in sites.items()}
    commands["second"] = ["second", "start", "--home", str(second.path)]
    (folder / "logs").mkdir()
    with processes(commands, folder / "logs") as running:
        seconds, cpu = {}, {}
        pids = [one.pid for one in running.values()]
        for word, more in (("plain", {}), ("paired", paired)):
            name = enqueue(home, study_of(word, rounds, width, more), "researcher")
            seconds[word], cpu[word] = conduct(home, sites, second, name, pids)
    ratio = median(seconds["paired"]) / median(seconds["plain"])
    return {
        "sites": len(NAMES),
        "rounds": rounds - 1,
        "plain_seconds": [round(one, 3) for one in seconds["plain"]],
        "two_servers_seconds": [round(one, 3) for one in seconds["paired"]],
        "ratio": round(ratio, 2),
        "ratio_of_bar": round(ratio / MOST_TIMES, 3),
        "cpu_ratio": round(cpu["paired"] / cpu["plain"], 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Two servers over real sites, against a plain round.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--width", type=int, default=2530)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(Path(folder), chosen.rounds, chosen.width)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
