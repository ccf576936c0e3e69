"""What Windows lacks is nowhere needed: the modules of a site load, and its files work, in a process without it.

Nobody ran this on Windows. The process below is this system's, made poorer: Python's POSIX modules and functions are
gone, folders cannot be opened, and locks are those of `msvcrt`, here made from `flock` before that is taken away.
"""

import subprocess
import sys
from pathlib import Path

import pytest

POORER = """
import asyncio, ctypes, getpass, importlib, multiprocessing, os, pathlib, pkgutil, platform, shutil, signal, socket, ssl
import stat, subprocess, sys, tempfile, threading, types, uuid, zipfile
import cryptography.x509, grpc, jax, nacl.bindings, numpy, nvflare, pandas, psutil, pydantic, rich.console, typer, yaml
import fcntl
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
import nvflare.fuel.f3.drivers.driver_manager
from nvflare.fuel.f3.drivers import grpc_driver

windows, flock = types.ModuleType("msvcrt"), fcntl.flock
windows.LK_LOCK, windows.LK_NBLCK = fcntl.LOCK_EX, fcntl.LOCK_EX | fcntl.LOCK_NB
windows.locking = lambda file, how, count: flock(file, how)
sys.modules["msvcrt"] = windows
for name in ("fcntl", "pwd", "grp", "resource", "termios", "pty", "tty", "syslog", "crypt"):
    sys.modules[name] = None  # an ImportError from now on
for name in ("pread", "pwrite", "fork", "getuid", "geteuid", "getgid", "fchmod", "chown", "statvfs", "killpg"):
    delattr(os, name)
os.O_BINARY, os.getlogin, sys.platform = 0, lambda: "fatu", "win32"
real = os.open
def without_folders(path, flags, mode=0o777, **more):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return real(path, flags, mode, **more)
os.open = without_folders
"""

IMPORTS = """
import wardround.deploy.party, wardround.deploy.site, wardround.deploy.coordinator, wardround.deploy.operations
import wardround.cli.party, wardround.runs, wardround.core, wardround.monitor, wardround.incentives
for room in ("core", "runs", "monitor", "incentives", "deploy.party", "deploy.site", "deploy.coordinator",
             "deploy.trust", "deploy.protocol", "deploy.transport.transfers", "deploy.operations", "cli.party"):
    package = importlib.import_module(f"wardround.{room}")
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(found.name)
import wardround.cli.app, wardround.deploy.transport.cellnet_transport
"""

FILES = """
from tests.support import small_site
from wardround.core.files import lock_file
from wardround.deploy.party.decisions import read_decision
from wardround.deploy.coordinator.consortium import is_running, lock_home
from wardround.deploy.demo import make_coordinator
from wardround.deploy.site.approvals import approve
from wardround.deploy.trust.audit_log import verify
from wardround.runs.lock import lock_folder

folder = pathlib.Path(sys.argv[1])
home = small_site.make(folder)
offer = small_site.offered(home)
approve(home, offer.id, by="fatu")
assert read_decision(home, offer.id).login == "fatu"
assert verify(home.audit_path, home.public_keys()) == []
assert b"\\r" not in home.audit_path.read_bytes()
hub = make_coordinator(folder / "hub", 1)
assert not is_running(hub)
with lock_home(hub):
    pass
held = lock_folder(folder)
assert held is lock_folder(folder)
print("all of it")
"""


def run(tmp_path: Path, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", POORER + program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_a_sites_files_work_without_what_windows_lacks(tmp_path: Path) -> None:
    assert "all of it" in run(tmp_path, IMPORTS + FILES)


def test_a_lock_of_windows_keeps_a_second_process_out(tmp_path: Path) -> None:
    """Both are processes of that kind: one holds the folder of a run while the other asks."""
    held = """
from wardround.core.errors import Refusal
from wardround.runs.lock import lock_folder
folder = pathlib.Path(sys.argv[1])
mine = lock_folder(folder)
if len(sys.argv) == 2:
    other = subprocess.run([sys.executable, "-c", PROGRAM, sys.argv[1], "again"], capture_output=True, text=True)
    print(other.stdout + other.stderr)
"""
    program = POORER + held
    done = subprocess.run(
        [sys.executable, "-c", f"PROGRAM = {program!r}\n{program}", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "another process is writing into this run folder" in done.stdout.casefold(), done.stderr[-2000:]
