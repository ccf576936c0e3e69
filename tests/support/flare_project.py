"""A provisioned FLARE project here: a server and its sites, each a process of FLARE's own, with our homes beside."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from wardround.deploy.demo import free_port, make_coordinator, make_site, write_patients
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.site.approvals import approve
from wardround.deploy.transport.flare_export import connect

SERVER = "localhost"
LEAD = "lead@ward.org"
PROJECT = """
api_version: 3
name: ward
participants:
  - {{name: localhost, type: server, org: ward, fed_learn_port: {port}, admin_port: {port}}}
{sites}
  - {{name: lead@ward.org, type: admin, org: ward, role: lead}}
builders:
  - {{path: nvflare.lighter.impl.workspace.WorkspaceBuilder, args: {{template_file: [master_template.yml]}}}}
  - {{path: nvflare.lighter.impl.static_file.StaticFileBuilder, args: {{config_folder: config}}}}
  - {{path: nvflare.lighter.impl.cert.CertBuilder}}
  - {{path: nvflare.lighter.impl.signature.SignatureBuilder}}
"""
SUBMIT = """
import json, os, sys, time
from nvflare.fuel.flare_api.flare_api import new_secure_session
kit, sites, *groups = sys.argv[1:]
end = time.time() + 90
session = None
while session is None:
    try:
        session = new_secure_session("lead@ward.org", kit, timeout=5)
    except Exception:
        if time.time() > end:
            raise
while len(session.get_system_info().client_info) < int(sites):
    assert time.time() < end, "the sites did not come"
    time.sleep(0.2)
told = []
for group in groups:
    for number in [session.submit_job(job) for job in group.split(",")]:
        told.append(session.wait_for_job(number, timeout=150, poll_interval=0.3))
with open(os.path.join(kit, "told.json"), "w") as file:
    json.dump(told, file, default=str)
os._exit(0)
"""
"""FLARE's own way to submit a job and wait for its end. In a process of its own, since FLARE's threads never end."""


class Federation:
    """The running project, with our homes beside the kits."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.names, self.kits = folder, tuple(names), kits_in(folder)
        self.coordinator = CoordinatorHome(folder / "coordinator")
        self.homes = {name: SiteHome(folder / name) for name in names}

    def submit(self, *groups: Sequence[Path], meanwhile: Callable[[], Any]) -> list[dict[str, Any]]:
        """Submit groups of jobs, each when the one before has ended; gives FLARE's word on each job."""
        kit = self.kits / LEAD
        words = [sys.executable, "-c", SUBMIT, str(kit), str(len(self.names))]
        words += [",".join(map(str, group)) for group in groups]
        with open(self.folder / "submit.log", "ab") as log, started(words, log) as process:
            meanwhile()
            assert process.wait(300) == 0, (self.folder / "submit.log").read_text()[-2000:]
        return list(json.loads((kit / "told.json").read_text()))

    def approve(self, study: str, names: Sequence[str] | None = None) -> None:
        """As administrators would, when the study is offered to them."""
        for name in self.names if names is None else names:
            home = self.homes[name]
            until((home.path / "offers" / f"{study}.json").exists, 120)
            approve(home, study, by=f"administrator-of-{name}")

    def log(self) -> str:
        """What FLARE's server and sites wrote, their jobs' too."""
        return "\n".join(path.read_text() for path in sorted(self.folder.rglob("log.txt")))


@contextmanager
def started(words: Sequence[str], log: Any, **more: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process; it and all that it started are gone at the end."""
    one_device = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=1"
    process = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, "XLA_FLAGS": one_device, **more})
    try:
        yield process
    finally:
        family = [process_ for process_ in descendants(process.pid) if process_.is_running()]
        for one in [*family, process]:
            one.kill()
        process.wait()


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def until(condition: Callable[[], Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def kits_in(folder: Path) -> Path:
    return folder / "ws" / "ward" / "prod_00"


def provision(folder: Path, names: Sequence[str]) -> None:
    """Homes and patients in a folder, and the kits as FLARE's provisioning makes them."""
    port = free_port()
    sites = "\n".join(f"  - {{name: {name}, type: client, org: ward}}" for name in names)
    (folder / "project.yml").write_text(PROJECT.format(port=port, sites=sites))
    words = [sys.executable, "-m", "nvflare.cli", "provision", "-p", "project.yml", "-w", "ws", "--force"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=120)
    coordinator = make_coordinator(folder / "coordinator", port)
    tables = write_patients(folder, names)
    for name in names:
        make_site(folder / name, name, coordinator, tables[name])


@contextmanager
def running(folder: Path, names: Sequence[str], **server: str) -> Iterator[Federation]:
    """The project at work: every kit allows our class and nothing else. `server` adds to its environment."""
    here = Federation(folder, names)
    told = [connect(here.kits / SERVER, here.coordinator.path, only=True)]
    told += [connect(here.kits / name, home.path, only=True) for name, home in here.homes.items()]
    assert all(one["may_ship_code"] == [] for one in told)
    stores = here.kits / SERVER / "local" / "resources.json"  # FLARE keeps jobs in /tmp/nvflare otherwise
    stores.write_text(stores.read_text().replace("/tmp/nvflare", str(folder / "stores")))

    @contextmanager
    def party(name: str, kind: str, **more: str) -> Iterator[None]:
        file, own = ("fed_server.json", []) if kind == "server" else ("fed_client.json", [f"uid={name}"])
        program = f"nvflare.private.fed.app.{kind}.{kind}_train"
        words = [sys.executable, "-u", "-m", program, "-m", str(here.kits / name), "-s", file]
        words += ["--set", "secure_train=true", "org=ward", "config_folder=config", *own]
        with open(folder / f"{name}.out", "ab") as log, started(words, log, **more):
            yield

    with ExitStack() as stack:
        stack.enter_context(party(SERVER, "server", **server))
        for name in names:
            stack.enter_context(party(name, "client"))
        yield here
