"""`wardround demo --sites N`: a whole consortium on this machine, each party a process of its own, over mutual TLS.

Nothing is played: keys, requests, certificates, policies, approvals and the network are those of real hospitals; only
the patients are made up. Everything that was started is stopped again, whatever happens.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wardround.core.errors import Refusal
from wardround.data.datasets.triage import triage
from wardround.deploy.coordinator.consortium import admit, begin_consortium, coordinator_settings
from wardround.deploy.coordinator.queue import enqueue
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.party.enrolment import join
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.datasets import add
from wardround.deploy.site.enrolment import begin_site, site_settings
from wardround.deploy.site.policy import Policy
from wardround.deploy.site.policy_file import policy_text, read_policy
from wardround.runs.json_files import read_json, write_file
from wardround.runs.read import require_result
from wardround.study.file import Study, parse_study

Tell = Callable[[str, Mapping[str, Any]], None]
PURPOSE = "triage of suspected Ebola"
NAMES = ("freetown", "kenema", "bo", "port-loko", "makeni", "kailahun", "waterloo", "koidu")
PATIENCE = 120.0
"""Seconds without any progress after which a demonstration gives up."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def demo_study(rounds: int = 10) -> Study:
    """The study that the demonstration conducts: the words are those of a study for real hospitals."""
    words = {
        "study": {"name": "demo", "seed": 278, "rounds": rounds, "purpose": PURPOSE},
        "data": {
            "source": "csv",
            "path": "patients.csv",
            "site": "hospital",
            "target": "ebola",
            "positive": "confirmed",
            "preparation": {"smallest_cell": 10},
        },
        "model": {"name": "logistic", "l2": 0.01},
        "algorithm": {"name": "fed_avg", "learning_rate": 0.1},
        "evaluation": {"resamples": 500},
    }
    return parse_study(words, where="the demonstration's study")


def make_coordinator(path: Path, port: int) -> CoordinatorHome:
    """A coordinator's home with the consortium's authority."""
    words = coordinator_settings("demo", "coordinator", f"localhost:{port}", ["localhost", "127.0.0.1"])
    return begin_consortium(path, words)


def make_site(path: Path, name: str, coordinator: CoordinatorHome, table: Path) -> SiteHome:
    """A site that joined the consortium, registered its table, and allows studies of the demonstration's purpose."""
    words = coordinator.settings
    home = begin_site(path, site_settings(name, words.listen, words.name), [PURPOSE])
    join(home, admit(coordinator, home.request_path).path, coordinator.authority_path)
    add(home, "demo", "csv", {"path": str(table)})
    policy: Policy = read_policy(home.policy_path)
    write_file(home.policy_path, policy_text(policy.model_copy(update={"columns": ["*"]})).encode())
    return home


def write_patients(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """One file of made-up patients for each site."""
    made = triage(hospitals=len(names), clusters=min(2, len(names)))
    paths = {}
    for name, frame in zip(names, made.sites.values(), strict=True):
        paths[name] = folder / f"{name}.csv"
        frame.to_csv(paths[name], index=False)
    return paths


@contextmanager
def processes(commands: Mapping[str, Sequence[str]], logs: Path) -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    """These commands of ours, each a process; all are stopped at the end, whatever happens."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, words in commands.items():
            running[name] = spawn(words, logs / f"{name}.log")
        yield running
    finally:
        for process in running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in running.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def spawn(words: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    """One of our commands in a process of its own; one device each, so that the parties do not crowd the machine."""
    code = "from wardround.cli.app import main; main()"
    environment = {
        **os.environ,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=1",
    }
    with open(log, "ab") as file:
        return subprocess.Popen([sys.executable, "-c", code, *words], stdout=file, stderr=file, env=environment)


def demonstrate(folder: Path, sites: int, tell: Tell, *, rounds: int = 10) -> dict[str, Any]:
    """Run the consortium's study to its end; gives where its run folder is, and the result."""
    if not 2 <= sites <= len(NAMES):
        raise Refusal(f"a demonstration has 2 to {len(NAMES)} sites", where="--sites", remedy="choose another number")
    names = NAMES[:sites]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "logs").mkdir(exist_ok=True)
    coordinator = make_coordinator(folder / "coordinator", free_port())
    tables = write_patients(folder, names)
    homes = {name: make_site(folder / name, name, coordinator, tables[name]) for name in names}
    tell("made", {"sites": list(names), "listen": coordinator.settings.listen})
    study = enqueue(coordinator, demo_study(rounds), "researcher")
    commands = {"coordinator": ["coordinator", "start", "--home", str(coordinator.path)]}
    commands |= {name: ["site", "start", "--home", str(home.path)] for name, home in homes.items()}
    with processes(commands, folder / "logs") as running:
        watch(coordinator, homes, study, running, tell)
    run = coordinator.folder(study) / "run"
    state = read_json(coordinator.folder(study) / "state.json", "see the logs")
    if state["state"] != "finished":
        raise Refusal(f"the demonstration failed: {state['why']}", where=str(folder / "logs"), remedy="see the logs")
    return {"folder": run, "result": require_result(run, "see the logs")}


def watch(
    coordinator: CoordinatorHome,
    homes: Mapping[str, SiteHome],
    study: str,
    running: Mapping[str, "subprocess.Popen[bytes]"],
    tell: Tell,
) -> None:
    """Approve at every site when the offer is there, and tell what happens, until the study has ended."""
    waiting = dict(homes)
    before: Any = None
    since = time.monotonic()
    while not (coordinator.folder(study) / "state.json").exists():
        for name in [name for name, home in waiting.items() if (home.path / "offers" / f"{study}.json").exists()]:
            approve(waiting.pop(name), study, by=f"administrator-of-{name}")
            tell("approved", {"site": name})
        status = coordinator.status()
        now = {key: status.get(key) for key in ("present", "round", "missing")}
        if now != before:
            before, since = now, time.monotonic()
            tell("status", {**now, "rounds": status.get("rounds")})
        dead = [name for name, process in running.items() if process.poll() is not None]
        if dead or time.monotonic() - since > PATIENCE:
            what = f"{dead[0]} exited unexpectedly" if dead else f"nothing happened for {PATIENCE:.0f} s"
            raise Refusal(what, where=str(coordinator.path.parent / "logs"), remedy="see the logs there")
        time.sleep(0.2)
