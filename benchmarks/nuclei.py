"""Nuclei over six types of microscopy: `python -m benchmarks.nuclei` prints one JSON object.

Middles of the tiles of the data set `nuclei` (`--size` pixels), at most `--most` training tiles a site, a small U-Net
with group normalization (batch normalization for `fed_bn`, whose point it is), the same number of passes for all. Every
site takes part: alone, all rows in one place, and together. With `--left-out` each site in turn is left out of
training, and the common model is judged on its test tiles alone. Dice of single tiles, means over `--seeds`; means over
sites of means over tiles, with percentile intervals of 2,000 resamples of the tiles within their sites. Settings are
chosen with `--part validation`. `--keep FILE` writes every run to a file as it ends and takes from there what is done.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.kept_runs import read_runs, write_runs
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.centralized import centralized
from wardround.algorithms.baselines.local import local
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.fed_prox import fed_prox
from wardround.algorithms.images.fed_bn import fed_bn
from wardround.algorithms.images.fed_dg import fed_dg
from wardround.core.contracts import Algorithm, Model, Scores
from wardround.core.federation import PARTS, Federation, assemble
from wardround.core.overlap import dice_of
from wardround.data.datasets.images.nuclei import nuclei
from wardround.engine.simulate import Simulation
from wardround.models.images.u_net import u_net

Numbers = np.ndarray[Any, Any]
RESAMPLES = 2000


def cut(whole: Federation, most: int, seed: int, judged: str = "test") -> Federation:
    """At most so many training tiles of every site, drawn by the seed, and to test those of the part that judges."""
    generator, pieces = np.random.default_rng(seed), []
    for site, name in enumerate(whole.sites):
        parts = []
        for part in PARTS:
            first, count = (int(column[site]) for column in whole.part(judged if part == "test" else part))
            rows = first + np.arange(count)
            if part == "train" and count > most:
                rows = np.sort(generator.choice(rows, most, replace=False))
            rows = rows[:0] if part == "validation" else rows
            parts.append((whole.x[rows], whole.y[rows]))
        pieces.append((name, parts))
    return assemble(pieces, whole.task)


def methods(model: Model, batch: Model, said: argparse.Namespace) -> dict[str, Algorithm]:
    """All methods with the same rate, batches and passes."""
    common: dict[str, Any] = {"learning_rate": said.rate, "batch_size": 4, "momentum": 0.9}
    mean = weighted_mean()
    return {
        "local": local(model, **common),
        "pooled": centralized(model, **{**common, "batch_size": said.pooled_batch}),
        "fed_avg": fed_avg(model, mean, **common),
        "fed_prox": fed_prox(model, mean, mu=0.01, **common),
        "fed_bn": fed_bn(batch, mean, **common),
        "fed_dg": fed_dg(model, mean, second_order=said.second_order, inner_learning_rate=said.inner_rate, **common),
    }


def scored(algorithm: Algorithm, model: Model, data: Federation, *, rounds: int, seed: int) -> Scores:
    """Test tiles of every site after training; a site without training tiles adds nothing."""
    with Simulation(data, seed=seed) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(seed)))
        course = [(number, np.arange(len(data.sites))) for number in range(1, rounds + 1)]
        return engine.predict(algorithm, engine.train(algorithm, progress, course)[0], "test")


def without(data: Federation, out: int) -> Federation:
    """The same sites, of which one has no training tiles."""
    counts = data.counts.copy()
    first = data.first.copy()
    first[out] += counts[out, 0]
    counts[out, 0] = 0
    return Federation(data.sites, data.x, data.y, first, counts, data.task)


def dice_by_site(scores: Scores, names: Any) -> dict[str, Numbers]:
    dice = dice_of(np.asarray(scores.predicted, np.float64), scores.actual)
    return {name: dice[scores.first[at] : scores.first[at + 1]] for at, name in enumerate(names)}


def interval(groups: list[Numbers], seed: int = 0) -> list[float]:
    """The mean over sites of the means over tiles, and between what values it lies when tiles are drawn again."""
    generator = np.random.default_rng(seed)
    drawn = [one[generator.integers(0, len(one), (RESAMPLES, len(one)))].mean(axis=1) for one in groups]
    low, high = np.quantile(np.mean(drawn, axis=0), [0.025, 0.975])
    return [round(float(one), 4) for one in (np.mean([one.mean() for one in groups]), low, high)]


Run = dict[str, Any]
"""Of one training: method, seed, the site left out (or none), rounds, and the Dice of every test tile by site."""


def trained(said: argparse.Namespace, kept: list[Run]) -> Iterator[Run]:
    """Every run that is asked for and not among those kept; one program serves all seeds and sites left out."""
    tiles = nuclei(size=said.size, standardize=said.standardize)
    settings: dict[str, Any] = {"filters": said.filters, "depth": said.depth, "flip": True}
    plain = u_net(tiles.task, **settings)
    batch = u_net(tiles.task, normalization="batch", statistics_rate=0.1 / said.rate, **settings)
    known = methods(plain, batch, said)
    done = {(one["method"], one["seed"], one["left out"]) for one in kept}
    for seed in said.seeds:
        data = cut(tiles, said.most, seed, judged=said.part)
        for name in said.methods:
            for out in data.sites if said.left_out else [None]:
                if (name, seed, out) in done:
                    continue
                began = time.process_time()
                own = data if out is None else without(data, data.sites.index(out))
                model = batch if name == "fed_bn" else plain
                scores = scored(known[name], model, own, rounds=said.rounds, seed=seed)
                groups = dice_by_site(scores, data.sites)
                told = groups if out is None else {out: groups[out]}
                yield {
                    "method": name,
                    "seed": seed,
                    "left out": out,
                    "standardize": said.standardize,
                    "rounds": said.rounds,
                    "dice": {site: np.round(dice, 4).tolist() for site, dice in told.items()},
                    "processor_seconds": round(time.process_time() - began, 1),
                }


def by_site(runs: Sequence[Run], name: str) -> dict[str, Numbers]:
    """Of one method: (seeds, tiles) of every site; the seeds that have all sites."""
    seeds = sorted({one["seed"] for one in runs if one["method"] == name})
    found: dict[str, list[Any]] = {}
    for seed in seeds:
        for one in runs:
            if (one["method"], one["seed"]) == (name, seed):
                for site, dice in one["dice"].items():
                    found.setdefault(site, []).append(dice)
    least = min(map(len, found.values()))
    return {site: np.asarray(dice[:least]) for site, dice in found.items()}


def summary(runs: Sequence[Run], against: str) -> Run:
    """Means over seeds with intervals of the tiles, each seed's mean, and paired differences from one method."""
    told: Run = {}
    found = {name: by_site(runs, name) for name in dict.fromkeys(one["method"] for one in runs)}
    for name, groups in found.items():
        each = np.mean([dice.mean(axis=1) for dice in groups.values()], axis=0)
        told[name] = {
            "mean": interval([dice.mean(axis=0) for dice in groups.values()]),
            "by seed": np.round(each, 4).tolist(),
            "sites": {site: round(float(dice.mean()), 3) for site, dice in groups.items()},
        }
        if name != against and against in found:
            gaps = [dice.mean(axis=0) - found[against][site].mean(axis=0) for site, dice in groups.items()]
            told[name][f"less {against}"] = interval(gaps)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--most", type=int, default=32)
    parser.add_argument("--filters", type=int, default=4)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=96)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--pooled-batch", type=int, default=4, help="of all tiles in one place")
    parser.add_argument("--inner-rate", type=float, default=0.01, help="of fed_dg's episodes")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--second-order", action="store_true")
    parser.add_argument("--standardize", action="store_true")
    parser.add_argument("--left-out", action="store_true")
    parser.add_argument("--part", choices=["validation", "test"], default="test")
    parser.add_argument("--methods", nargs="*", default=["local", "pooled", "fed_avg", "fed_prox", "fed_bn", "fed_dg"])
    parser.add_argument("--against", default="pooled")
    parser.add_argument("--keep", type=Path, help="a file that has every run as it ends, and is gone on from")
    said = parser.parse_args()
    kept: Path | None = said.keep
    runs = read_runs(kept)
    for run in write_runs(trained(said, runs), kept):
        runs.append(run)
        words = {key: value for key, value in run.items() if key != "dice"}
        means = {site: round(float(np.mean(dice)), 3) for site, dice in run["dice"].items()}
        print(json.dumps({**words, "dice": means}), flush=True)
    said.keep = None if kept is None else str(kept)
    print(json.dumps({"settings": vars(said), **summary(runs, said.against)}, indent=1))


if __name__ == "__main__":
    main()
