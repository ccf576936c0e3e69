"""Nuclei over six types of microscopy: `python -m benchmarks.nuclei` prints one JSON object.

Middles of the tiles of the data set `nuclei` (`--size` pixels), at most `--most` training tiles a site, a small U-Net
with group normalization (batch normalization for `fed_bn`, whose point it is), the same number of passes for all. First
every site takes part: alone, all rows in one place, and together. Then each site in turn is left out of training, and
the common model is judged on its test tiles. Dice of single tiles; means over sites of means over tiles, with
percentile intervals of 2,000 resamples of the tiles within their sites. `--only` names the parts to run.
"""

import argparse
import json
import time
from typing import Any

import jax
import numpy as np

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
        "pooled": centralized(model, **common),
        "fed_avg": fed_avg(model, mean, **common),
        "fed_prox": fed_prox(model, mean, mu=0.01, **common),
        "fed_bn": fed_bn(batch, mean, **common),
        "fed_dg": fed_dg(model, mean, second_order=said.second_order, **common),
    }


def scored(algorithm: Algorithm, model: Model, data: Federation, said: argparse.Namespace) -> Scores:
    """Test tiles of every site after training; a site without training tiles adds nothing."""
    with Simulation(data, seed=said.seed) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(said.seed)))
        everybody = np.arange(len(data.sites))
        rounds = [(number, everybody) for number in range(1, said.rounds + 1)]
        return engine.predict(algorithm, engine.train(algorithm, progress, rounds)[0], "test")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--most", type=int, default=40)
    parser.add_argument("--filters", type=int, default=8)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--second-order", action="store_true")
    parser.add_argument("--only", nargs="*", default=["together", "left_out"])
    parser.add_argument("--methods", nargs="*", default=["local", "pooled", "fed_avg", "fed_prox", "fed_bn", "fed_dg"])
    parser.add_argument("--unseen", nargs="*", default=["pooled", "fed_avg", "fed_dg"])
    said = parser.parse_args()
    data = cut(nuclei(size=said.size), said.most, said.seed)
    settings: dict[str, Any] = {"filters": said.filters, "depth": said.depth, "flip": True}
    plain = u_net(data.task, **settings)
    batch = u_net(data.task, normalization="batch", statistics_rate=0.1 / said.rate, **settings)
    known = methods(plain, batch, said)
    told: dict[str, Any] = {"settings": vars(said), "tiles": dict(zip(data.sites, data.counts.tolist(), strict=True))}
    if "together" in said.only:
        told["together"] = {}
        for name in said.methods:
            began = time.process_time()
            model = batch if name == "fed_bn" else plain
            groups = dice_by_site(scored(known[name], model, data, said), data.sites)
            told["together"][name] = {
                "sites": {site: interval([one])[:3] for site, one in groups.items()},
                "mean": interval(list(groups.values())),
                "processor_seconds": round(time.process_time() - began, 1),
            }
            print(json.dumps({name: told["together"][name]}), flush=True)
    if "left_out" in said.only:
        unseen: dict[str, dict[str, Numbers]] = {name: {} for name in said.unseen}
        for out, site in enumerate(data.sites):
            for name in said.unseen:
                groups = dice_by_site(scored(known[name], plain, without(data, out), said), data.sites)
                unseen[name][site] = groups[site]
                print(json.dumps({"left out": site, name: interval([groups[site]])}), flush=True)
        told["left_out"] = {
            name: {
                "sites": {site: interval([one]) for site, one in found.items()},
                "mean": interval(list(found.values())),
            }
            for name, found in unseen.items()
        }
        if {"fed_avg", "fed_dg"} <= set(unseen):
            gaps = [unseen["fed_dg"][site] - unseen["fed_avg"][site] for site in data.sites]
            told["fed_dg_less_fed_avg"] = {
                "sites": {site: interval([gap]) for site, gap in zip(data.sites, gaps, strict=True)},
                "mean": interval(gaps),
            }
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
