"""A million clients in files of LEAF's format, of which a study reads those it draws.

Writes a thousand files of a thousand users with 1 to 9 short tweets each (about 0.3 GB) into a temporary folder, then
in another process: looks through them for where every user stands, keeps that index, loads it again, trains rounds of a
hundred clients and judges a thousand. Prints one JSON line: processor seconds of each step, the largest memory of that
process, and the share of the files' bytes that were read for rows.

    python -m benchmarks.leaf_population --users 1000000
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

USERS_A_FILE, COHORT, ROUNDS, JUDGED, WORDS = 1_000, 100, 10, 1_000, 64


def write_files(folder: Path, users: int) -> None:
    rng = np.random.default_rng(1)
    for number in range(-(-users // USERS_A_FILE)):
        rows = rng.integers(1, 10, min(USERS_A_FILE, users - number * USERS_A_FILE))
        names = [f"user{number * USERS_A_FILE + place}" for place in range(len(rows))]
        words = iter(rng.integers(0, 500, (int(rows.sum()), 3)).tolist())
        data = {}
        for name, count in zip(names, rows.tolist(), strict=True):
            texts = [next(words) for _ in range(count)]
            x = [["0", "", "", name, f"w{a} w{b} w{c}", ""] for a, b, c in texts]
            data[name] = {"x": x, "y": [int(a < 250) for a, _, _ in texts]}
        content = {"users": names, "num_samples": rows.tolist(), "user_data": data}
        (folder / f"{number:05d}.json").write_text(json.dumps(content))


def measure(folder: Path) -> dict[str, Any]:
    import jax

    from wardround.aggregators.weighted_mean import weighted_mean
    from wardround.algorithms.fed_avg import fed_avg
    from wardround.data.datasets.leaf import drawn_rows
    from wardround.data.datasets.leaf.leaf_files import leaf_files
    from wardround.engine.participation import random_cohort
    from wardround.engine.simulate import Simulation
    from wardround.models.logistic import logistic

    taken: dict[str, float] = {}
    read, stretch = 0, drawn_rows.stretch

    def counted(file: Path, begin: int, end: int) -> bytes:
        nonlocal read
        read += end - begin
        return stretch(file, begin, end)

    def timed(name: str, step: Callable[[], Any]) -> Any:
        begin = time.process_time()
        found = step()
        taken[name] = round(time.process_time() - begin, 2)
        return found

    drawn_rows.stretch = counted
    settings: dict[str, Any] = {"path": str(folder / "files"), "name": "sent140", "words": WORDS, "lazy": True}
    timed("index", lambda: leaf_files(**settings, index=str(folder / "index.npz")))
    federation = timed("index, found again", lambda: leaf_files(**settings, index=str(folder / "index.npz")))
    sites = len(federation.sites)
    model = logistic(federation.task)
    algorithm = fed_avg(model, weighted_mean(), batch_size=5)
    who = random_cohort(sites, COHORT, 1)
    judged = np.sort(np.random.default_rng(0).choice(sites, min(JUDGED, sites), replace=False))
    with Simulation(federation, seed=1, largest_cohort=COHORT, evaluated=judged) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        progress, _ = timed("first round", lambda: engine.train(algorithm, progress, [(1, who.cohort(1))]))
        rounds = [(number, who.cohort(number)) for number in range(2, ROUNDS + 2)]
        progress, _ = timed(f"{ROUNDS} more", lambda: engine.train(algorithm, progress, rounds))
        quality = timed("judging", lambda: engine.judge(algorithm, progress, "test"))
    size = sum(file.stat().st_size for file in (folder / "files").iterdir())
    return {
        "clients": sites,
        "rows": int(federation.counts.sum()),
        "megabytes": round(size / 1e6, 1),
        "index_megabytes": round((folder / "index.npz").stat().st_size / 1e6, 1),
        "processor_seconds": taken,
        "largest_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        "share_of_bytes_read_for_rows": round(read / size, 5),
        "accuracy": round(float(quality.accuracy or 0.0), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A population in LEAF's files, read as it is drawn.")
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        print(json.dumps(measure(options.folder)))
        return
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "files").mkdir()
        write_files(Path(name) / "files", options.users)
        subprocess.run([sys.executable, "-m", "benchmarks.leaf_population", "--folder", name], check=True)


if __name__ == "__main__":
    main()
