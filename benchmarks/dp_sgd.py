"""Private steps against Opacus on the same machine: `python -m benchmarks.dp_sgd` prints one JSON object of ratios.

Steps of DP-SGD on a 64-64-2 network (batches of 64 and 256) and on LEAF's network (batches of 64), in examples a
second, and a round of 20 sites of 1,000 rows with the small network. Ours are whole private steps as a study takes
them: Poisson batches drawn with, and noise made from, bits of the operating system; Opacus is given ready batches of
fixed size and takes its noise from PyTorch's generator, with one thread or two, whichever is quicker. Both sides run
in processes of their own, ours before and after the peer; the quickest repetition of each counts, and what is reported
are ratios.

The peer's environment is made by `python -m benchmarks.dp_sgd --install` (under `benchmarks/.peers`).
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.environments import ROOT, TORCH, Environment
from benchmarks.install import install

OPACUS = Environment("opacus", (TORCH, "opacus==1.6.0"))
CASES: dict[str, tuple[str, int]] = {"mlp 64": ("mlp", 64), "mlp 256": ("mlp", 256), "cnn 64": ("cnn", 64)}
SITES, ROWS, BATCH = 20, 1000, 64
BARS = {"mlp 64": 3.0, "mlp 256": 3.0, "cnn 64": 3.0, "round of 20 sites": 20.0}
STEPS = {"mlp": 50, "cnn": 4}
"""Steps in one repetition."""


def quickest(once: Callable[[], None], repeats: int) -> float:
    """Seconds of the quickest of several repetitions, after one that is not counted."""
    once()
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        once()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def ours() -> dict[str, float]:
    """Milliseconds a step, and a round, of our own."""
    import jax
    import numpy as np

    from wardround.aggregators.weighted_mean import weighted_mean
    from wardround.algorithms.fed_avg import fed_avg
    from wardround.core.contracts import Algorithm, Model, Task
    from wardround.core.federation import Federation, assemble
    from wardround.engine.simulate import Simulation
    from wardround.models.cnn import cnn
    from wardround.models.mlp import mlp
    from wardround.privacy.dp_sgd import private_model, sample_level
    from wardround.privacy.sampling import ExpectedSize

    generator = np.random.default_rng(0)

    def federation(task: Task, sites: int, rows: int) -> Federation:
        def site() -> Any:
            x = generator.normal(size=(rows, *task.shape)).astype(np.float32)
            return x, generator.integers(0, len(task.classes), rows).astype(np.int32)

        x, y = site()
        return assemble([(f"site-{i}", (site(), (x[:0], y[:0]), (x[:0], y[:0]))) for i in range(sites)], task)

    def private(model: Model, batch: int) -> Algorithm:
        under = private_model(model, clip=1.0, noise_multiplier=1.0)
        made = fed_avg(under, weighted_mean(), batch_size=ExpectedSize(batch))
        return sample_level(made, fed_avg(model, weighted_mean(), batch_size=batch), seeded=False)

    def seconds_a_round(model: Model, data: Federation, batch: int, rounds: int, repeats: int) -> float:
        algorithm, everyone = private(model, batch), np.arange(len(data.sites))
        with Simulation(data) as engine:
            progress = engine.begin(algorithm, model.init(jax.random.key(0)))
            done = 0

            def once() -> None:
                nonlocal progress, done
                numbers = range(done + 1, done + rounds + 1)
                progress, _ = engine.train(algorithm, progress, [(number, everyone) for number in numbers])
                done += rounds

            return quickest(once, repeats) / rounds

    small, images = Task((64,), ("0", "1")), Task((28, 28), tuple(str(i) for i in range(62)))
    models: dict[str, tuple[Model, Task]] = {"mlp": (mlp(small, hidden=(64,)), small), "cnn": (cnn(images), images)}
    told = {}
    for case, (name, batch) in CASES.items():
        model, task = models[name]
        steps = STEPS[name]
        rounds, repeats = (4, 20) if name == "mlp" else (1, 5)
        whole = seconds_a_round(model, federation(task, 1, steps * batch), batch, rounds, repeats)
        told[case] = 1e3 * whole / steps
    told["round of 20 sites"] = 1e3 * seconds_a_round(models["mlp"][0], federation(small, SITES, ROWS), BATCH, 5, 20)
    return told


def theirs() -> dict[str, float]:
    """The same of Opacus; runs in its own environment."""
    import warnings

    import torch
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from torch import nn

    warnings.filterwarnings("ignore")

    def network(name: str) -> Any:
        if name == "mlp":
            return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        convolutions = [nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        convolutions += [nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        return nn.Sequential(*convolutions, nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 62))

    def steps(name: str, batch: int, count: int) -> Callable[[], None]:
        model = GradSampleModule(network(name))
        optimizer = DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            expected_batch_size=batch,
        )
        shape, classes = ((64,), 2) if name == "mlp" else ((1, 28, 28), 62)
        x, y = torch.randn(batch, *shape), torch.randint(0, classes, (batch,))

        def once() -> None:
            for _ in range(count):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()

        return once

    told: dict[str, float] = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for case, (name, batch) in CASES.items():
            count, repeats = (STEPS[name], 20) if name == "mlp" else (1, 5)
            taken = 1e3 * quickest(steps(name, batch, count), repeats) / count
            told[case] = min(taken, told.get(case, taken))
        # Every site takes its steps from the common model; the averaging itself is left out, in the peer's favour.
        of_a_site = -(-ROWS // BATCH)
        round_taken = 1e3 * quickest(steps("mlp", BATCH, SITES * of_a_site), 5)
        told["round of 20 sites"] = min(round_taken, told.get("round of 20 sites", round_taken))
    return told


def in_process(python: str, role: str) -> dict[str, float]:
    done = subprocess.run(
        [python, "-m", "benchmarks.dp_sgd", "--role", role], cwd=ROOT, capture_output=True, text=True, check=True
    )
    told: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return told


def measure() -> dict[str, Any]:
    """All cases: milliseconds of both, and how many times quicker ours are."""
    before = in_process(sys.executable, "ours")
    peer = in_process(str(OPACUS.python), "theirs")
    after = in_process(sys.executable, "ours")
    result: dict[str, Any] = {}
    for case, bar in BARS.items():
        own = min(before[case], after[case])
        row = {"ours_ms": own, "opacus_ms": peer[case], "ratio": peer[case] / own, "bar": bar}
        if case in CASES:
            row["examples_a_second"] = 1e3 * CASES[case][1] / own
        result[case] = {key: round(value, 3) for key, value in row.items()}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Time private steps of ours and of Opacus, and print ratios.")
    parser.add_argument("--install", action="store_true", help="make the peer's environment first")
    parser.add_argument("--role", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        print(json.dumps(ours() if options.role == "ours" else theirs()))
        return
    if options.install:
        install(OPACUS)
    print(json.dumps(measure(), indent=1))


if __name__ == "__main__":
    main()
