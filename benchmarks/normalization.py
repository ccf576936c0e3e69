"""Which normalization suits sites whose images look different? `python -m benchmarks.normalization` prints JSON.

Chest X-rays of children (`pneumonia_mnist`, needs WARDROUND_DATA) at four sites of 300 training images each. "alike":
as they are. "different": every site's scanner is another, made up here: as it is, dark (a third of the intensity), pale
(compressed towards white), inverted. The network of the pain study with two convolutions of 8 and 16 filters, once with
batch normalization, whose statistics are averaged (`fed_avg`) or stay (`fed_bn`), once with group normalization, once
with none; `--rounds` of one pass, rate 0.05, batches of 16, the best round by the validation loss. Each site's test
images are judged by the model that it would use: mean of sensitivity and specificity over all sites, its mean over
`--seeds` with a 95 % t-interval, and how many bytes of numbers a site sends in a round. `--keep FILE` writes every run
to a file as it ends and takes from there what is done.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import stats

from benchmarks.kept_runs import read_runs, write_runs
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.images.fed_bn import fed_bn
from wardround.core.contracts import Algorithm, Model, Task
from wardround.core.federation import Federation, assemble
from wardround.data.datasets.pneumonia_mnist import pneumonia_mnist
from wardround.engine.fit import EarlyStopping, Schedule, fit
from wardround.engine.participation import everyone
from wardround.engine.simulate import Simulation
from wardround.models.pain_cnn import pain_cnn

SITES, ROWS, RATE = 4, 300, 0.05
SCANNERS = (lambda x: x, lambda x: x / 3, lambda x: 170 + x / 3, lambda x: 255 - x)
LOOKS = ("alike", "different")
Numbers = np.ndarray[Any, Any]


def federation_of(seed: int, *, different: bool) -> Federation:
    whole = pneumonia_mnist(sites=SITES, seed=seed)
    pieces = []
    for site, name in enumerate(whole.sites):
        parts = []
        for part, most in (("train", ROWS), ("validation", 10**9), ("test", 10**9)):
            first, count = (int(one[site]) for one in whole.part(part))
            rows = slice(first, first + min(count, most))
            scanned = SCANNERS[site](whole.x[rows].astype(np.float32)) if different else whole.x[rows]
            parts.append((np.round(scanned).astype(np.uint8), whole.y[rows]))
        pieces.append((name, parts))
    return assemble(pieces, whole.task)


def methods(task: Task) -> dict[str, tuple[Model, Algorithm]]:
    found: dict[str, tuple[Model, Algorithm]] = {}
    said: dict[str, Any] = {"learning_rate": RATE, "batch_size": 16}
    for kind in ("batch", "group", "none"):
        model = pain_cnn(task, normalization=kind, filters=(8, 16), dense=32, statistics_rate=0.1 / RATE)
        found[f"{kind}, fed_avg"] = model, fed_avg(model, weighted_mean(), **said)
        if kind == "batch":
            found["batch, fed_bn"] = model, fed_bn(model, weighted_mean(), **said)
    return found


def balanced(predicted: Numbers, actual: Numbers) -> float:
    right = (predicted[:, 1] > 0.5) == (actual > 0)
    return float(np.mean([right[actual == one].mean() for one in (0, 1)]))


Run = dict[str, Any]
"""Of one training: look of the sites, method, seed, the round that was taken, figures, and bytes sent."""


def figures(federation: Federation, model: Model, algorithm: Algorithm, *, rounds: int, seed: int) -> Run:
    """One training of the best round by the validation loss, judged on all test images."""
    with Simulation(federation, seed=seed) as engine:
        params = jax.jit(model.init)(jax.random.key(seed))
        stopping = EarlyStopping(rounds)
        done = fit(algorithm, engine, params, everyone(SITES), Schedule(rounds), validates=True, stopping=stopping)
        scores = engine.predict(algorithm, done.progress, "test")
    sent = algorithm.broadcast(algorithm.init(params, SITES)).arrays["params"]
    by_site = [slice(scores.first[site], scores.first[site + 1]) for site in range(SITES)]
    return {
        "round": done.best_round,
        "balanced": balanced(scores.predicted, scores.actual),
        "by site": [balanced(scores.predicted[own], scores.actual[own]) for own in by_site],
        "bytes": sum(int(np.size(one)) * 4 for one in jax.tree.leaves(sent)),
    }


def trained(said: argparse.Namespace, kept: Sequence[Run]) -> Iterator[Run]:
    """Every run that is asked for and not among those kept; a method's program serves all seeds and looks."""
    done = {(one["look"], one["method"], one["seed"]) for one in kept}
    known: dict[str, tuple[Model, Algorithm]] = {}
    for seed in range(said.seeds):
        for look in LOOKS:
            federation = federation_of(seed, different=look == "different")
            known = known or methods(federation.task)
            for name, (model, algorithm) in known.items():
                if (look, name, seed) not in done:
                    began = time.process_time()
                    found = figures(federation, model, algorithm, rounds=said.rounds, seed=seed)
                    seconds = round(time.process_time() - began, 1)
                    yield {"look": look, "method": name, "seed": seed, **found, "processor_seconds": seconds}


def interval(values: list[float]) -> list[float]:
    """The mean, and half of the 95 % t-interval."""
    if len(values) < 2:
        return [round(values[0], 3)]
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return [round(float(np.mean(values)), 3), round(float(half), 3)]


def table(runs: Sequence[Run], look: str) -> Run:
    """By method: figures over seeds, and what it has more than group norm, seed by seed."""
    found: dict[str, dict[int, Run]] = {}
    for one in runs:
        if one["look"] == look:
            found.setdefault(one["method"], {})[one["seed"]] = one
    plain = found["group, fed_avg"]
    return {
        name: {
            "balanced": interval([one["balanced"] for one in by_seed.values()]),
            "seeds": [round(one["balanced"], 3) for one in by_seed.values()],
            "worst site": interval([min(one["by site"]) for one in by_seed.values()]),
            "less group": interval([by_seed[seed]["balanced"] - plain[seed]["balanced"] for seed in by_seed]),
            "by site": np.mean([one["by site"] for one in by_seed.values()], axis=0).round(3).tolist(),
            "rounds": [one["round"] for one in by_seed.values()],
            "bytes": next(iter(by_seed.values()))["bytes"],
        }
        for name, by_seed in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--keep", type=Path, help="a file that has every run as it ends, and is gone on from")
    said = parser.parse_args()
    kept: Path | None = said.keep
    runs = read_runs(kept)
    for run in write_runs(trained(said, runs), kept):
        runs.append(run)
        print(json.dumps(run), flush=True)
    seconds = round(sum(one["processor_seconds"] for one in runs), 1)
    told = {"seeds": said.seeds, "rounds": said.rounds, "processor_seconds": seconds}
    print(json.dumps({**told, **{look: table(runs, look) for look in LOOKS}}, indent=1))


if __name__ == "__main__":
    main()
