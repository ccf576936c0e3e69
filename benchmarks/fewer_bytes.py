"""Bytes to the same accuracy, compression and federated dropout together, on digits by their writers.

Figure 2.5 of the thesis (Caldas, ch. 2) in small: FedAvg, and the three schemes of table 2.2 (and EDEN) on the whole
model and on sub-models of 0.75 and 0.5 of its width. Ten of 539 writers a round, one pass, batches of 10, rate 0.15;
two convolutions of 8 and 16 filters and 64 units. Every method sees the same cohorts and first models, seed by seed.
The model is judged on all writers' test digits every ten rounds; counted are the bytes down and up until the first look
at which an accuracy is reached.

    python -m benchmarks.fewer_bytes --rounds 120 --seeds 5 --methods "moderate, 0.75 rescaled"
    python -m benchmarks.fewer_bytes --rounds 60 --seeds 2

print the tables of docs/results/fewer_bytes.md (need WARDROUND_DATA). `--keep FILE` writes every run to a file as it
ends and takes from there what is done already (of a longer run its first rounds, which are the same), so that the study
can be stopped and taken up again. `--first-seed 5` goes on where five seeds were made; their kept file makes it ten.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.stats import t

from benchmarks.kept_runs import read_runs
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.federated_dropout import federated_dropout
from wardround.core.contracts import Algorithm, Transform
from wardround.data.datasets.mnist_writers import mnist_writers
from wardround.engine.participation import random_cohort
from wardround.engine.simulate import Simulation
from wardround.models.cnn import cnn
from wardround.transforms.compression import compression
from wardround.transforms.eden import eden

COHORT, EVERY = 10, 10
TARGETS = (0.90, 0.93, 0.95, 0.96)


class Method(NamedTuple):
    width: float = 1.0
    transform: Transform | None = None
    rescale: bool = False


def methods() -> dict[str, Method]:
    """FedAvg, figure 2.5's grid on rescaled parts, and beside it parts as in the paper, and EDEN."""
    schemes = {name: compression(scheme=name) for name in ("conservative", "moderate", "aggressive")}
    whole = {name: Method(1.0, scheme) for name, scheme in schemes.items()}
    parts = {
        f"{name}, {width} rescaled": Method(width, scheme, rescale=True)
        for name, scheme in schemes.items()
        for width in (0.75, 0.5)
    }
    others = {
        "moderate, 0.75": Method(0.75, schemes["moderate"]),
        "eden 2, 0.75 rescaled": Method(0.75, eden(bits=2), rescale=True),
    }
    return {"FedAvg": Method(), **whole, **parts, **others}


class Study:
    """The same clients, first models and cohorts for every method."""

    def __init__(self, rounds: int) -> None:
        self.federation = mnist_writers()
        self.model = cnn(self.federation.task, channels=(8, 16), dense=64)
        self.rounds = rounds

    def algorithm(self, method: Method) -> Algorithm:
        settings: dict[str, Any] = {"learning_rate": 0.15, "batch_size": 10}
        if method.width == 1.0:
            return fed_avg(self.model, weighted_mean(), **settings)
        return federated_dropout(self.model, weighted_mean(), width=method.width, rescale=method.rescale, **settings)

    def run(self, method: Method, seed: int) -> dict[str, Any]:
        """Accuracy at every look, and the bytes of a round."""
        algorithm, who = self.algorithm(method), random_cohort(len(self.federation.sites), COHORT, seed)
        accuracies = []
        with Simulation(self.federation, seed=seed, transform=method.transform, largest_cohort=COHORT) as engine:
            progress = engine.begin(algorithm, self.model.init(jax.random.key(seed)))
            down, up = engine.message_bytes(algorithm, progress)
            for done in range(0, self.rounds, EVERY):
                rounds = [(number, who.cohort(number)) for number in range(done + 1, done + EVERY + 1)]
                progress, _ = engine.train(algorithm, progress, rounds)
                accuracies.append(round(float(engine.judge(algorithm, progress, "test").accuracy or 0.0), 5))
        return {"accuracies": accuracies, "bytes_down": down, "bytes_up": up}


def taken_up(done: list[dict[str, Any]], method: str, seed: int, rounds: int) -> dict[str, Any] | None:
    """A kept run of so many rounds, or the beginning of a longer one."""
    for run in done:
        if (run["method"], run["seed"]) == (method, seed) and run["rounds"] >= rounds:
            return {**run, "rounds": rounds, "accuracies": run["accuracies"][: rounds // EVERY]}
    return None


def rounds_to(accuracies: list[float], target: float) -> int | None:
    """Rounds until the first look at which the accuracy is reached."""
    return next((EVERY * (place + 1) for place, one in enumerate(accuracies) if one >= target), None)


def spread(differences: list[float]) -> str:
    """Mean and 95 % interval over seeds (Student's t), in points."""
    mean = 100 * float(np.mean(differences))
    if len(differences) < 2:
        return f"{mean:+.2f}"
    half = 100 * float(t.ppf(0.975, len(differences) - 1) * np.std(differences, ddof=1) / len(differences) ** 0.5)
    return f"{mean:+.2f} ({mean - half:+.2f} to {mean + half:+.2f})"


def print_tables(found: dict[str, dict[int, dict[str, Any]]], rounds: int) -> None:
    plain = found["FedAvg"]
    looks = [look for look in (rounds // 3, 2 * rounds // 3, rounds) if look >= EVERY]
    heads = " | ".join(f"round {look}" for look in looks)
    print(f"| | seeds | smaller down | up | {heads} | difference to FedAvg, round {rounds}, points |")
    print("|---|---|---|---|" + "---|" * (len(looks) + 1))
    for name, runs in found.items():
        one = next(iter(runs.values()))
        whole = next(iter(plain.values()))
        at = [np.mean([own["accuracies"][look // EVERY - 1] for own in runs.values()]) for look in looks]
        both = [runs[seed]["accuracies"][-1] - plain[seed]["accuracies"][-1] for seed in runs if seed in plain]
        savings = " | ".join(f"{whole[way] / one[way]:.1f} ×" for way in ("bytes_down", "bytes_up"))
        told = " | ".join(f"{100 * mean:.2f} %" for mean in at)
        print(f"| {name} | {len(runs)} | {savings} | {told} | {spread(both)} |")
    print()
    print("| bytes to reach, in times of FedAvg's | " + " | ".join(f"{100 * target:g} %" for target in TARGETS) + " |")
    print("|---|" + "---|" * len(TARGETS))
    for name, runs in found.items():
        print(f"| {name} | " + " | ".join(fewer(runs, plain, target) for target in TARGETS) + " |")


def fewer(runs: dict[int, dict[str, Any]], plain: dict[int, dict[str, Any]], target: float) -> str:
    """FedAvg's bytes until the target by this method's, and the rounds of both, over the seeds that both have."""
    shared = [seed for seed in runs if seed in plain]
    needed = [
        (rounds_to(runs[seed]["accuracies"], target), rounds_to(plain[seed]["accuracies"], target)) for seed in shared
    ]
    if any(own is None or whole is None for own, whole in needed):
        return "not reached by all"
    own, whole = (sum(pair[place] or 0 for pair in needed) / len(needed) for place in range(2))
    ours, theirs = runs[shared[0]], plain[shared[0]]
    ratio = whole * (theirs["bytes_down"] + theirs["bytes_up"]) / (own * (ours["bytes_down"] + ours["bytes_up"]))
    return f"{ratio:.1f} × ({own:.0f} rounds for {whole:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Bytes to the same accuracy; prints two tables.")
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--methods", nargs="*", default=list(methods()), choices=list(methods()))
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    kept: Path | None = options.keep
    done = read_runs(kept)
    study = Study(options.rounds)
    found: dict[str, dict[int, dict[str, Any]]] = {}
    # Seed by seed, so that a study stopped early has pairs to compare.
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for name in ["FedAvg", *(one for one in options.methods if one != "FedAvg")]:
            key = {"method": name, "seed": seed, "rounds": options.rounds}
            run = taken_up(done, name, seed, options.rounds)
            if run is None:
                run = {**key, **study.run(methods()[name], seed)}
                if kept:
                    with kept.open("a") as file:
                        file.write(json.dumps(run) + "\n")
            found.setdefault(name, {})[seed] = run
    print_tables(found, options.rounds)


if __name__ == "__main__":
    main()
