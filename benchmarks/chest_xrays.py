"""Pneumonia on children's chest X-rays over uneven sites: `python -m benchmarks.chest_xrays` prints one JSON object.

The data set `pneumonia_mnist` (4,708 images to train, 524 to validate, 624 to test; needs WARDROUND_DATA) over
`--sites` sites, with labels in Dirichlet(`--alpha`) proportions, so that sites differ in size and in how common
pneumonia is. A perceptron or a small CNN (`--model`), the same passes and learning rate for all. First everybody is
honest: alone, all images in one place, and together by several aggregators. Then `--bad` sites have every label wrong.
Of the numbers of rounds in `--looks` each method takes, split by split, the one with the least log loss on the
validation images when everybody is honest, and the same with wrong labels. Judged on the test images of all sites, each
by the model its site would use: the mean of sensitivity and specificity, and the area under the ROC curve, which does
not ask where the threshold lies; means over `--seeds` splits, with percentile intervals of 2,000 resamples of the
splits and of the images in each, also of the differences from `weighted_mean` (paired by image). `--keep FILE` writes
every run to a file as it ends and takes from there what is done.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.kept_runs import read_runs, write_runs
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
SMALLEST = 1e-7
"""Of a probability, where its logarithm is taken."""
PARTS = ("honest", "wrong labels")
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


Run = dict[str, Any]
"""Of one training: part (honest or not), method, split, and at each look the rounds, loss and test probabilities."""


def followed(algorithm: Algorithm, model: Model, data: Federation, looks: Sequence[int], seed: int) -> list[Run]:
    """At each number of rounds the log loss of all validation images, and the test images' probabilities."""
    found = []
    with Simulation(data, seed=seed) as engine:
        progress, done = engine.begin(algorithm, model.init(jax.random.key(seed))), 0
        everybody = np.arange(len(data.sites))
        for look in looks:
            progress, _ = engine.train(algorithm, progress, [(n, everybody) for n in range(done + 1, look + 1)])
            done = look
            seen = engine.predict(algorithm, progress, "validation")
            right = np.asarray(seen.predicted)[np.arange(len(seen.actual)), np.asarray(seen.actual, int)]
            loss = -float(np.mean(np.log(np.maximum(right, SMALLEST))))
            odds = np.asarray(engine.predict(algorithm, progress, "test").predicted)[:, 1]
            found.append({"rounds": look, "loss": round(loss, 5), "odds": [float(f"{one:.6g}") for one in odds]})
    return found


def chosen(run: Run) -> int:
    """Which look has the least validation loss."""
    return int(np.argmin([look["loss"] for look in run["looks"]]))


def judged(odds: Sequence[float], actual: Numbers, seed: int) -> dict[str, Numbers]:
    """Balanced accuracy and area under the curve, behind each that of every resample; the same for all of a seed."""
    count, sure = len(actual), np.asarray(odds)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    times = np.concatenate([np.ones((1, count)), drawn])
    return {"balanced": balanced((sure > 0.5) == actual, actual, times), "area": ranked(sure, actual, times)}


def summary(found: Sequence[Numbers]) -> list[float]:
    """A mean over splits, and between what values it lies when images and splits are drawn again."""
    all_splits = np.stack(found)
    drawn_splits = np.random.default_rng(0).integers(0, len(found), (RESAMPLES, len(found)))
    drawn = all_splits[:, 1:][drawn_splits, np.arange(RESAMPLES)[:, None]].mean(axis=1)
    return [round(100 * float(one), 1) for one in (all_splits[:, 0].mean(), *np.quantile(drawn, [0.025, 0.975]))]


def trained(said: argparse.Namespace, splits: Sequence[Federation], kept: Sequence[Run]) -> Iterator[Run]:
    """Every run that is asked for and not among those kept."""
    model = MODELS[said.model](splits[0].task)
    known = {name: one for name, one in methods(model, said.rate).items() if name in said.methods}
    done = {(one["part"], one["method"], one["split"]) for one in kept}
    for seed, data in enumerate(splits):
        liars = np.random.default_rng(seed).choice(said.sites, said.bad, replace=False).tolist()
        for part in PARTS:
            for name, algorithm in known.items():
                if (part, name, seed) in done or (part != "honest" and name not in AGGREGATORS):
                    continue
                began = time.process_time()
                own = algorithm if part == "honest" else with_bad_sites(algorithm, liars, label_flip(2))
                looks = followed(own, model, data, said.looks, seed)
                seconds = round(time.process_time() - began, 1)
                yield {"part": part, "method": name, "split": seed, "looks": looks, "processor_seconds": seconds}


def table(runs: Sequence[Run], splits: Sequence[Federation]) -> Run:
    """By part and method: rounds, both figures with intervals, and both less those of the weighted mean."""
    truth = [data.y[data.rows_of("test")] for data in splits]
    rounds = {(one["method"], one["split"]): chosen(one) for one in runs if one["part"] == "honest"}
    found: dict[tuple[str, str], dict[int, dict[str, Numbers]]] = {}
    for one in runs:
        split = one["split"]
        look = one["looks"][rounds.get((one["method"], split), len(one["looks"]) - 1)]
        figures = judged(look["odds"], truth[split], split)
        found.setdefault((one["part"], one["method"]), {})[split] = figures
    told: Run = {}
    for (part, name), by_split in found.items():
        plain = found.get((part, "weighted_mean"), {})
        both = [split for split in by_split if split in plain]
        words: Run = {"rounds": [runs_at["rounds"] for runs_at in looks_at(runs, rounds, part, name)]}
        for figure in ("balanced", "area"):
            values = [one[figure] for one in by_split.values()]
            words[figure] = {"mean": summary(values), "splits": [round(100 * float(one[0]), 1) for one in values]}
            if name != "weighted_mean" and both:
                gaps = [by_split[split][figure] - plain[split][figure] for split in both]
                words[figure]["less weighted_mean"] = summary(gaps)
        told.setdefault(part, {})[name] = words
    return told


def looks_at(runs: Sequence[Run], rounds: dict[tuple[str, int], int], part: str, name: str) -> Iterator[Run]:
    """The look that was chosen for each split of a method."""
    for one in runs:
        if (one["part"], one["method"]) == (part, name):
            yield one["looks"][rounds.get((name, one["split"]), len(one["looks"]) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--bad", type=int, default=2)
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--looks", type=int, nargs="*", default=[3, 6, 10, 15, 20])
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--model", default="cnn", choices=list(MODELS))
    parser.add_argument("--methods", nargs="*", default=["local", "pooled", *AGGREGATORS])
    parser.add_argument("--keep", type=Path, help="a file that has every run as it ends, and is gone on from")
    said = parser.parse_args()
    splits = [pneumonia_mnist(sites=said.sites, alpha=said.alpha, seed=seed) for seed in range(said.seeds)]
    kept: Path | None = said.keep
    runs = read_runs(kept)
    for run in write_runs(trained(said, splits, runs), kept):
        runs.append(run)
        losses = {look["rounds"]: look["loss"] for look in run["looks"]}
        print(json.dumps({key: value for key, value in run.items() if key != "looks"} | {"losses": losses}), flush=True)
    said.keep = None if kept is None else str(kept)
    images = [one.counts[:, 0].tolist() for one in splits]
    seconds = round(sum(one["processor_seconds"] for one in runs), 1)
    told = {"settings": vars(said), "images": images, "processor_seconds": seconds, **table(runs, splits)}
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
