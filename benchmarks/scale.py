"""How a round grows: seconds and peak memory for cohorts of 100, 1,000 and 10,000 and populations of 10^4 to 10^6.

`python -m benchmarks.scale` prints one line of JSON. Every point runs in a process of its own, so that its peak memory
is its own. Clients have 20 rows of 32 features; the model is an MLP 32-32-10. Rows lie in a file mapped into memory.
Peak memory is the process's own (anonymous) memory: pages of the mapped file are the operating system's cache, which it
may drop at any time.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import jax
import psutil

from benchmarks.environments import ROOT

POINTS = ((100, 10_000), (1_000, 10_000), (10_000, 10_000), (1_000, 100_000), (1_000, 1_000_000))
ROUNDS = 6


class Peak:
    """The largest amount of memory of its own that this process ever held."""

    def __enter__(self) -> "Peak":
        self.bytes, self._stop = 0, threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._watch.join()

    def _look(self) -> None:
        process = psutil.Process()
        while not self._stop.is_set():
            memory = process.memory_info()
            self.bytes = max(self.bytes, memory.rss - memory.shared)
            time.sleep(0.005)


def point(cohort: int, population: int, folder: str) -> dict[str, Any]:
    """Seconds a round and peak memory of one cohort out of one population."""
    from wardround.aggregators.weighted_mean import weighted_mean
    from wardround.algorithms.fed_avg import fed_avg
    from wardround.data.datasets.synthetic_population import synthetic_population
    from wardround.engine.participation import random_cohort
    from wardround.engine.simulate import Simulation
    from wardround.models.mlp import mlp

    federation = synthetic_population(clients=population, rows=20, spread=0.0, features=32, classes=10, folder=folder)
    model = mlp(federation.task, hidden=(32,))
    algorithm = fed_avg(model, weighted_mean(), batch_size=10)
    who = random_cohort(population, cohort, seed=1)
    with Simulation(federation, seed=1, largest_cohort=cohort) as engine, Peak() as peak:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        progress, _ = engine.train(algorithm, progress, [(1, who.cohort(1))])
        taken = []
        for number in range(2, ROUNDS + 2):
            begun = time.perf_counter()
            progress, _ = engine.train(algorithm, progress, [(number, who.cohort(number))])
            taken.append(time.perf_counter() - begun)
    return {
        "cohort": cohort,
        "population": population,
        "seconds a round": median(taken),
        "ms a client": 1e3 * median(taken) / cohort,
        "peak memory, MB": peak.bytes / 1e6,
    }


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(point(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
        return
    rows = []
    with tempfile.TemporaryDirectory(dir=ROOT / "benchmarks") as folder:
        for cohort, population in POINTS:
            place = Path(folder) / str(population)
            place.mkdir(exist_ok=True)
            command = [sys.executable, "-m", "benchmarks.scale", str(cohort), str(population), str(place)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout.strip().splitlines()[-1]))
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
