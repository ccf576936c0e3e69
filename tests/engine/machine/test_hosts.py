"""Two processes that meet on loopback train the same model as one."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("one_host.py")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start(count: int, number: int, address: str, case: tuple[str, str], target: Path) -> subprocess.Popen:
    clean = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    command = [sys.executable, str(SCRIPT), str(count), str(number), address, *case, str(target)]
    return subprocess.Popen(command, env=clean, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("case", [("scaffold", "weighted_mean"), ("fed_avg", "median")])
def test_two_hosts_give_the_same_model_as_one(case, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    running = [start(2, number, address, case, tmp_path / f"host{number}.npz") for number in (0, 1)]
    running.append(start(1, 0, "", case, tmp_path / "alone.npz"))
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    alone = np.load(tmp_path / "alone.npz")
    for number in (0, 1):
        one = np.load(tmp_path / f"host{number}.npz")
        assert set(one) == set(alone)
        for name in alone:
            np.testing.assert_allclose(one[name], alone[name], atol=2e-6)
