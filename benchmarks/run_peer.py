"""Run one peer on one case in its own environment: `python -m benchmarks.run_peer fedjax tabular --rounds 5`.

`run_peer` is what `wardround bench` calls. A peer that is not installed, fails or takes too long is told in one
sentence, never guessed.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.environments import PEERS, ROOT
from wardround.core.errors import Refusal

IMAGES = Path("mnist_with_writers") / "mnist_writers.npz"
# Our own process may have set these for its own rounds; a peer must not inherit them.
OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONWARNINGS", "VIRTUAL_ENV", "XLA_FLAGS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Peers that would report to their makers are told not to.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_METRICS_COLLECTION": "1"}


def run_peer(
    name: str,
    case: str,
    rounds: int = 5,
    *,
    batch_size: int | None = None,
    data: Path | None = None,
    timeout: float = 900.0,
) -> dict[str, Any]:
    """What the peer's script prints: peer, case, version, ms_per_round, startup_seconds, batch_size, threads, loss."""
    peer = PEERS.get(name)
    if peer is None:
        raise Refusal(f"there is no peer called {name!r}", remedy=f"choose one of {', '.join(PEERS)}")
    if case not in peer.cases:
        raise Refusal(f"{name} has no case {case!r}", remedy=f"choose one of {', '.join(peer.cases)}")
    if rounds < 1 or (batch_size is not None and batch_size < 1):
        raise Refusal("rounds and batch size are whole numbers from 1", remedy="ask for one round or more")
    environment = peer.environment
    if not environment.ready:
        raise Refusal(
            f"{name} is not installed", where=str(environment.directory.relative_to(ROOT)), remedy="run make bench"
        )
    command = [str(environment.python), "-m", peer.module, "--case", case, "--rounds", str(rounds)]
    if case == "images":
        command += ["--data", str(images(data))]
    if batch_size is not None:
        command += ["--batch-size", str(batch_size)]
    return parse(name, case, *finish(name, case, command, timeout))


def images(data: Path | None) -> Path:
    """The file of handwritten digits: the one given, or the one under WARDROUND_DATA."""
    folder = Path(os.environ.get("WARDROUND_DATA") or ROOT.parent / "shared" / "data")
    path = (data or folder / IMAGES).resolve()
    if not path.is_file():
        raise Refusal(
            "the handwritten digits are missing",
            where=str(path),
            remedy=f"set WARDROUND_DATA to the folder that holds {IMAGES}",
        )
    return path


def finish(name: str, case: str, command: list[str], timeout: float) -> tuple[int, str, str]:
    """Run the command to its end, or end it and everything it started when the time is up."""
    variables = {key: value for key, value in os.environ.items() if key not in OURS and not key.startswith("JAX_")}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=variables | QUIET,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Refusal(
            f"{name} did not finish {case} within {timeout:g} seconds",
            remedy="ask for fewer rounds, or allow more time",
        ) from None
    finally:
        # Also on Ctrl-C; the group is the peer's own, so its worker processes end with it.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, out, err


def parse(name: str, case: str, code: int, out: str, err: str) -> dict[str, Any]:
    """The line of JSON among what the peer printed; some frameworks print lines of their own."""
    lines = [line for line in out.splitlines() if line.startswith('{"peer"')]
    if code != 0 or len(lines) != 1:
        told = " / ".join(line.strip() for line in err.strip().splitlines()[-3:]) or "nothing"
        raise Refusal(
            f"{name} failed on {case} with code {code} and said: {told}",
            remedy="run make bench again, or leave this peer out",
        )
    result: dict[str, Any] = json.loads(lines[0])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description="Run one peer on one case and print its line of JSON.")
    parser.add_argument("peer", help=", ".join(PEERS))
    parser.add_argument("case", help="tabular, images or hospitals")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--timeout", type=float, default=900.0)
    options = parser.parse_args()
    try:
        result = run_peer(
            options.peer,
            options.case,
            options.rounds,
            batch_size=options.batch_size,
            data=options.data,
            timeout=options.timeout,
        )
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return 2
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
