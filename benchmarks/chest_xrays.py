"""Pneumonia on children's chest X-rays over uneven sites: `python -m benchmarks.chest_xrays` prints one JSON object.

The data set `pneumonia_mnist` (4,708 images to train, 624 to test; needs WARDROUND_DATA) over `--sites` sites, with
labels in Dirichlet(`--alpha`) proportions, so that sites differ in size and in how common pneumonia is. A perceptron or
a small CNN (`--model`), the same passes and learning rate for all. First everybody is honest: alone, all images in one
place, and together by several aggregators. Then `--bad` sites have every label wrong. Judged on the test images of all
sites, each by the model its site would use: the mean of sensitivity and specificity, and the area under the ROC curve,
which does not ask where the threshold lies; means over `--seeds` splits, with percentile intervals of 2,000 resamples
of the splits and of the images in each.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from wardround.aggregators.class_weighted import class_weighted
from wardround.aggregators.majority_mean import majority_mean
from wardround.aggregators.median import median
from wardround.aggregators.reliable_mean import reliable_mean
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.centralized import centralized
from wardround.algorithms.baselines.local import local
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Aggregator, Algorithm, Model, Task
from wardround.core.federation import Federation
from wardround.data.datasets.pneumonia_mnist import pneumonia_mnist
from wardround.engine.simulate import Simulation
from wardround.models.cnn import cnn
from wardround.models.mlp import mlp
from wardround.privacy.attacks.bad_sites import label_flip, with_bad_sites

Numbers = np.ndarray[Any, Any]
RESAMPLES = 2000
AGGREGATORS: dict[str, Aggregator] = {
    "weighted_mean": weighted_mean(),
    "class_weighted": class_weighted(),
    "reliable_mean": reliable_mean(longest=10.0, at_once=10.0),
    "majority_mean": majority_mean(deviations=30.0),
    "median": median(),
}
"""Large sites make more steps and longer updates, so that length alone says little here."""

MODELS: dict[str, Callable[[Task], Model]] = {
    "mlp": partial(mlp, hidden=(32,)),
    "cnn": partial(cnn, channels=(4, 8), kernel=3, dense=32),
}


def methods(model: Model, rate: float) -> dict[str, Algorithm]:
    common: dict[str, Any] = {"learning_rate": rate, "batch_size": 16}
    alone = {"local": local(model, **common), "pooled": centralized(model, **common)}
    return alone | {name: fed_avg(model, one, **common) for name, one in AGGREGATORS.items()}


def balanced(right: Numbers, actual: Numbers, times: Numbers) -> Numbers:
    """The mean of sensitivity and specificity, where each image counts so many times."""
    shares = [(times * right * (actual == label)).sum(-1) / (times * (actual == label)).sum(-1) for label in (0, 1)]
    return np.asarray(np.mean(shares, axis=0))


def ranked(odds: Numbers, actual: Numbers, times: Numbers) -> Numbers:
    """The area under the ROC curve, where each image counts so many times; equal odds count half."""
    _, place = np.unique(odds, return_inverse=True)
    healthy, ill = (np.zeros((place.max() + 1, len(times))) for _ in range(2))
    for found, label in ((healthy, 0), (ill, 1)):
        np.add.at(found, place, (times * (actual == label)).T)
    below = np.cumsum(healthy, axis=0) - healthy / 2
    return np.asarray((ill * below).sum(axis=0) / (ill.sum(axis=0) * healthy.sum(axis=0)))


def judged(algorithm: Algorithm, model: Model, data: Federation, rounds: int, seed: int) -> dict[str, Numbers]:
    """Balanced accuracy and area under the curve, behind each that of every resample."""
    with Simulation(data, seed=seed) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(seed)))
        everybody = np.arange(len(data.sites))
        progress, _ = engine.train(algorithm, progress, [(number, everybody) for number in range(1, rounds + 1)])
        scores = engine.predict(algorithm, progress, "test")
    predicted, actual = np.asarray(scores.predicted), np.asarray(scores.actual)
    count = len(actual)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    times = np.concatenate([np.ones((1, count)), drawn])
    right = predicted.argmax(axis=1) == actual
    return {"balanced": balanced(right, actual, times), "area": ranked(predicted[:, 1], actual, times)}


def summary(found: list[Numbers]) -> list[float]:
    """A mean over splits, and between what values it lies when images and splits are drawn again."""
    all_splits = np.stack(found)
    chosen = np.random.default_rng(0).integers(0, len(found), (RESAMPLES, len(found)))
    drawn = all_splits[:, 1:][chosen, np.arange(RESAMPLES)[:, None]].mean(axis=1)
    return [round(100 * float(one), 1) for one in (all_splits[:, 0].mean(), *np.quantile(drawn, [0.025, 0.975]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--bad", type=int, default=2)
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--model", default="cnn", choices=list(MODELS))
    parser.add_argument("--methods", nargs="*", default=["local", "pooled", *AGGREGATORS])
    said = parser.parse_args()
    began = time.process_time()
    splits = [pneumonia_mnist(sites=said.sites, alpha=said.alpha, seed=seed) for seed in range(said.seeds)]
    model = MODELS[said.model](splits[0].task)
    known = {name: one for name, one in methods(model, said.rate).items() if name in said.methods}
    told: dict[str, Any] = {"settings": vars(said), "images": [one.counts[:, 0].tolist() for one in splits]}
    for part, bad in (("honest", 0), ("wrong labels", said.bad)):
        told[part] = {}
        for name, algorithm in known.items():
            if bad and name not in AGGREGATORS:
                continue
            found = []
            for seed, data in enumerate(splits):
                liars = np.random.default_rng(seed).choice(said.sites, bad, replace=False).tolist()
                own = with_bad_sites(algorithm, liars, label_flip(2)) if bad else algorithm
                found.append(judged(own, model, data, said.rounds, seed))
            told[part][name] = {
                figure: {
                    "mean": summary([one[figure] for one in found]),
                    "splits": [round(100 * float(one[figure][0]), 1) for one in found],
                }
                for figure in ("balanced", "area")
            }
            print(json.dumps({part: {name: told[part][name]}}), flush=True)
    print(json.dumps({**told, "processor_seconds": round(time.process_time() - began, 1)}))


if __name__ == "__main__":
    main()
