"""Every case side by side in one run: our rounds, the peers' rounds, the floor; what is reported are ratios.

Our own side is measured before and after every peer, each time in a fresh process, so that a slow phase of the machine
meets both. A ratio is the peer's median over the median of our two runs around it.
"""

import json
import subprocess
import sys
from statistics import median
from typing import Any

from benchmarks.environments import PEERS, ROOT
from benchmarks.run_peer import run_peer
from wardround.core.errors import Refusal

OURS = {"tabular": 20, "hospitals": 20, "images": 6}
ROUNDS = {"tabular": 8, "hospitals": 30, "images": 3}
BATCH = {"hospitals": 10}


def ours(module: str, *arguments: str) -> dict[str, Any]:
    """One of our own scripts in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Refusal(f"{module} failed and said: {done.stderr.strip()[-500:]}", remedy="run it on its own")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def one_of_ours(case: str) -> dict[str, Any]:
    batch = ("--batch-size", str(BATCH[case])) if case in BATCH else ()
    return ours("benchmarks.ours", case, "--rounds", str(OURS[case]), *batch)


def measure(case: str) -> list[dict[str, Any]]:
    """The rows of one case's table."""
    if case == "scale":
        return list(ours("benchmarks.scale")["rows"])
    runs = [one_of_ours(case)]
    rows: list[dict[str, Any]] = []
    for name, peer in PEERS.items():
        if case not in peer.cases:
            continue
        try:
            told = run_peer(name, case, ROUNDS[case], batch_size=BATCH.get(case))
        except Refusal as refusal:
            rows.append({"who": name, "ms a round": str(refusal), "times ours": ""})
            continue
        runs.append(one_of_ours(case))
        here = median(median(run["ms_per_round"]) for run in runs[-2:])
        theirs = median(told["ms_per_round"])
        rows.append({"who": f"{name} {told['version']}", "ms a round": theirs, "times ours": theirs / here})
    own = median(median(run["ms_per_round"]) for run in runs)
    first = {"who": "wardround", "ms a round": own, "times ours": 1.0}
    return [first, *rows, *beside(case, runs)]


def beside(case: str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What our own runs measured in the same process: the floor, centralised training, compilation."""
    rows = []
    for key, word, figures in (
        ("times_the_floor", "floor: 253 MFLOP in one matrix product", "floor_ms"),
        ("times_the_strict_floor", "floor: the 172 MFLOP really needed", "strict_floor_ms"),
        ("times_centralized", "centralised, same rows, same library", "centralized_ms"),
    ):
        if key in runs[0]:
            ratio = median(run[key] for run in runs)
            rows.append({"who": word, "ms a round": median(median(r[figures]) for r in runs), "times ours": 1 / ratio})
    seconds = median(run["compile_seconds"] for run in runs)
    rows.append({"who": "our first call, compilation included (s)", "ms a round": seconds, "times ours": ""})
    return rows


def main() -> None:
    cases = sys.argv[1:] or ["tabular", "hospitals", "images", "scale"]
    for case in cases:
        print(json.dumps({case: measure(case)}, indent=1), flush=True)


if __name__ == "__main__":
    main()
