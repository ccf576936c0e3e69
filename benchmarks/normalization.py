"""Which normalization suits sites whose images look different? `python -m benchmarks.normalization` prints JSON.

Chest X-rays of children (`pneumonia_mnist`, needs WARDROUND_DATA) at four sites of 300 training images each. "alike":
as they are. "different": every site's scanner is another, made up here: as it is, dark (a third of the intensity), pale
(compressed towards white), inverted. The network of the pain study with two convolutions of 8 and 16 filters, once with
batch normalization, whose statistics are averaged (`fed_avg`) or stay (`fed_bn`), once with group normalization, once
with none; 15 rounds of one pass, rate 0.05, batches of 16, the best round by the validation loss. Each site's test
images are judged by the model that it would use: mean of sensitivity and specificity over all sites, its mean over
`--seeds` with a 95 % t-interval, and how many numbers a site sends in a round.
"""

import argparse
import json
from typing import Any

import jax
import numpy as np
from scipy import stats

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.images.fed_bn import fed_bn
from wardround.core.contracts import Algorithm, Model
from wardround.core.federation import Federation, assemble
from wardround.data.datasets.pneumonia_mnist import pneumonia_mnist
from wardround.engine.fit import EarlyStopping, Schedule, fit
from wardround.engine.participation import everyone
from wardround.engine.simulate import Simulation
from wardround.models.pain_cnn import pain_cnn

SITES, ROWS, ROUNDS, RATE = 4, 300, 15, 0.05
SCANNERS = (lambda x: x, lambda x: x / 3, lambda x: 170 + x / 3, lambda x: 255 - x)
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


def methods(federation: Federation) -> dict[str, tuple[Model, Algorithm]]:
    found: dict[str, tuple[Model, Algorithm]] = {}
    said: dict[str, Any] = {"learning_rate": RATE, "batch_size": 16}
    for kind in ("batch", "group", "none"):
        model = pain_cnn(federation.task, normalization=kind, filters=(8, 16), dense=32, statistics_rate=0.1 / RATE)
        found[f"{kind}, fed_avg"] = model, fed_avg(model, weighted_mean(), **said)
        if kind == "batch":
            found["batch, fed_bn"] = model, fed_bn(model, weighted_mean(), **said)
    return found


def balanced(predicted: Numbers, actual: Numbers) -> float:
    right = (predicted[:, 1] > 0.5) == (actual > 0)
    return float(np.mean([right[actual == one].mean() for one in (0, 1)]))


def figures(seed: int, *, different: bool) -> dict[str, dict[str, float]]:
    federation = federation_of(seed, different=different)
    found = {}
    for name, (model, algorithm) in methods(federation).items():
        with Simulation(federation, seed=seed) as engine:
            params = jax.jit(model.init)(jax.random.key(seed))
            done = fit(
                algorithm,
                engine,
                params,
                everyone(SITES),
                Schedule(ROUNDS),
                validates=True,
                stopping=EarlyStopping(ROUNDS),
            )
            scores = engine.predict(algorithm, done.progress, "test")
            sent = algorithm.broadcast(algorithm.init(params, SITES)).arrays["params"]
        by_site = [slice(scores.first[site], scores.first[site + 1]) for site in range(SITES)]
        found[name] = {
            "balanced": balanced(scores.predicted, scores.actual),
            "worst_site": min(balanced(scores.predicted[own], scores.actual[own]) for own in by_site),
            "numbers": sum(int(np.size(one)) for one in jax.tree.leaves(sent)),
        }
    return found


def interval(values: list[float]) -> list[float]:
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0
    return [round(float(np.mean(values)), 3), round(float(half), 3)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    said = parser.parse_args()
    told = {}
    for different in (False, True):
        found = [figures(seed, different=different) for seed in range(said.seeds)]
        told["different" if different else "alike"] = {
            name: {
                "balanced": interval([one[name]["balanced"] for one in found]),
                "worst_site": interval([one[name]["worst_site"] for one in found]),
                "minus_group": interval([one[name]["balanced"] - one["group, fed_avg"]["balanced"] for one in found]),
                "numbers": int(found[0][name]["numbers"]),
            }
            for name in found[0]
        }
    print(json.dumps({"seeds": said.seeds, **told}, indent=1))


if __name__ == "__main__":
    main()
