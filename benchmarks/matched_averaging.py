"""Does matching units before averaging help? `python -m benchmarks.matched_averaging [CASE]` prints one JSON object.

Cases: `dense` and `writers` are handwritten digits of 40 writers at four sites of ten writers each (`mnist_writers`)
with a dense network of 32 hidden units, or two convolutions of 8 and 16 filters and a dense layer of 32; `cifar10` are
6,000 pictures at eight sites in Dirichlet(0.5) proportions of the classes, with three 3 x 3 convolutions of 8, 16 and
32 filters and a dense layer of 64 (the paper: 16 sites, VGG-9, all pictures). Needs WARDROUND_DATA with these data.

All train for `--sweeps` sweeps of `fed_ma`, that is as many rounds as the network has layers, times `--epochs` passes a
round. On the test images of all sites: the mean accuracy of the sites' own models (each from random weights of its own,
and as many passes alone), their plain average, their ensemble (mean probabilities); `fed_ma` from the same weights of
their own, of fixed width and with `growth`, and from common weights; FedAvg from common weights. Bytes are those of all
messages of one site, both ways. One rate for all, chosen beforehand. Means over `--seeds` with 95 % t-intervals.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import stats

from benchmarks.kept_runs import read_runs
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.local import local
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.images.fed_ma import fed_ma
from wardround.algorithms.images.matched_layers import layers_of
from wardround.core.contracts import Algorithm, Model, Task
from wardround.core.federation import PARTS, Federation, assemble
from wardround.data.datasets.images.cifar10 import cifar10
from wardround.data.datasets.mnist_writers import mnist_writers
from wardround.engine.simulate import Simulation
from wardround.models.cnn import cnn
from wardround.models.mlp import mlp

WRITER_SITES, WRITERS = 4, 10
CIFAR_SITES, CIFAR_ROWS, CIFAR_TESTED, ALPHA = 8, 6_000, 2_000, 0.5
GROWTH = 0.5


class Setting(NamedTuple):
    rate: float
    batch_size: int
    epochs: int
    sweeps: int
    seeds: int


CASES = {
    "dense": Setting(0.1, 16, 5, 2, 5),
    "writers": Setting(0.1, 16, 3, 3, 5),
    "cifar10": Setting(0.05, 20, 2, 3, 3),
}


def writers_of(seed: int) -> Federation:
    """Four sites of ten writers each, drawn by the seed."""
    whole = mnist_writers(seed=seed)
    drawn = np.random.default_rng(seed).choice(len(whole.sites), WRITER_SITES * WRITERS, replace=False)
    pieces = []
    for site in range(WRITER_SITES):
        parts = []
        for part in PARTS:
            first, count = whole.part(part)
            own = drawn[site * WRITERS : (site + 1) * WRITERS]
            rows = np.concatenate([np.arange(first[one], first[one] + count[one]) for one in own])
            parts.append((whole.x[rows], whole.y[rows]))
        pieces.append((f"site-{site}", parts))
    return assemble(pieces, Task((28, 28, 1), whole.task.classes, "digit"))


def pictures_of(seed: int) -> Federation:
    """Eight sites with label skew: of every site's pictures the same share, drawn by the seed."""
    whole = cifar10(clients=CIFAR_SITES, alpha=ALPHA, seed=seed)
    rng = np.random.default_rng(seed)
    pieces = []
    for site, name in enumerate(whole.sites):
        parts = []
        for part, share in zip(PARTS, (CIFAR_ROWS / 50_000, 0.0, CIFAR_TESTED / 10_000), strict=True):
            first, count = (int(one[site]) for one in whole.part(part))
            rows = first + rng.permutation(count)[: max(1, round(share * count)) if count else 0]
            parts.append((whole.x[rows], whole.y[rows]))
        pieces.append((name, parts))
    return assemble(pieces, whole.task)


def case_of(case: str, seed: int) -> tuple[Federation, Model]:
    if case == "cifar10":
        federation = pictures_of(seed)
        return federation, cnn(federation.task, channels=(8, 16, 32), kernel=3, dense=64)
    federation = writers_of(seed)
    if case == "dense":
        return federation, mlp(federation.task, hidden=(32,))
    return federation, cnn(federation.task, channels=(8, 16), kernel=5, dense=32)


class Course(NamedTuple):
    state: Any
    kept: Any
    right: list[float]
    """After every sweep, of the common model."""
    bytes: int


def trained(algorithm: Algorithm, federation: Federation, params: Any, rounds: int, every: int, seed: int) -> Course:
    everybody, right = np.arange(len(federation.sites)), []
    with Simulation(federation, seed=seed) as engine:
        progress = engine.begin(algorithm, params)
        sent = sum(engine.message_bytes(algorithm, progress)) * rounds
        for first in range(1, rounds + 1, every):
            progress, _ = engine.train(algorithm, progress, [(n, everybody) for n in range(first, first + every)])
            right.append(float(engine.judge(algorithm, progress, "test").accuracy or 0.0))
    return Course(jax.device_get(progress.server), jax.device_get(progress.clients), right, sent)


def figures(case: str, seed: int, setting: Setting) -> dict[str, Any]:
    federation, model = case_of(case, seed)
    said: dict[str, Any] = {
        "local_epochs": setting.epochs,
        "learning_rate": setting.rate,
        "batch_size": setting.batch_size,
    }
    layers = len(layers_of(model).arrays)
    rounds, sites = layers * setting.sweeps, len(federation.sites)
    predict, init = jax.jit(model.predict), jax.jit(model.init)
    rows = federation.rows_of("test")
    x, y = federation.x[rows], federation.y[rows]

    def told(params: Any) -> Any:
        return np.concatenate([np.asarray(predict(params, x[at : at + 500])) for at in range(0, len(x), 500)])

    def right(predicted: Any) -> float:
        return float(np.mean(np.argmax(predicted, axis=1) == y))

    common = init(jax.random.key(seed))
    # The starts that fed_ma gives its sites, all trained at once: a site's start is what it has kept.
    own_starts = [init(jax.random.fold_in(jax.random.key(17), site)) for site in range(sites)]
    alone = local(model, **said)
    with Simulation(federation, seed=seed) as engine:
        progress = engine.begin(alone, common)
        stacked = jax.tree.map(lambda *one: jax.numpy.stack(one), *own_starts)
        progress = replace(progress, clients=stacked)
        progress, _ = engine.train(alone, progress, [(n, np.arange(sites)) for n in range(1, rounds + 1)])
        kept = jax.device_get(progress.clients)
    own = [{name: array[site] for name, array in kept.items()} for site in range(sites)]
    share = federation.counts[:, 0]
    plain = {name: np.average([one[name] for one in own], axis=0, weights=share) for name in own[0]}
    answers = [told(one) for one in own]
    size = sum(int(array.nbytes) for array in own[0].values())
    found: dict[str, Any] = {
        "own": {"right": [float(np.mean([right(one) for one in answers]))], "bytes": 0},
        "plain_average": {"right": [right(told(plain))], "bytes": 2 * size},
        "ensemble": {"right": [right(np.mean(answers, axis=0))], "bytes": (1 + sites) * size},
    }
    methods = {
        "fed_ma_own_start": fed_ma(model, own_start=True, **said),
        "fed_ma_grows": fed_ma(model, own_start=True, growth=GROWTH, **said),
        "fed_ma_common_start": fed_ma(model, **said),
        "fed_avg": fed_avg(model, weighted_mean(), **said),
    }
    for name, algorithm in methods.items():
        course = trained(algorithm, federation, common, rounds, layers, seed)
        found[name] = {"right": course.right, "bytes": course.bytes}
        if name == "fed_ma_grows":
            live = (course.state["order"] >= 0).any(axis=0).sum(axis=1)
            found[name]["units"] = [int(one) for one in live]
    return {"seed": seed, "rows": int(share.sum()), "parameters": size // 4, "rounds": rounds, "found": found}


def interval(values: Any) -> list[float]:
    """Mean and half of a 95 % t-interval."""
    spread = float(np.std(values, ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return [round(float(np.mean(values)), 4), round(float(stats.t.ppf(0.975, max(1, len(values) - 1))) * spread, 4)]


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    names = list(found[0]["found"])
    last = {name: np.array([one["found"][name]["right"][-1] for one in found]) for name in names}
    return {
        "accuracy": {name: interval(values) for name, values in last.items()},
        "by_sweep": {name: np.mean([one["found"][name]["right"] for one in found], axis=0).round(4).tolist()
                     for name in names},
        "minus_fed_avg": {name: interval(values - last["fed_avg"]) for name, values in last.items()},
        "megabytes": {name: round(found[0]["found"][name]["bytes"] / 1e6, 2) for name in names},
        "units": [one["found"]["fed_ma_grows"]["units"] for one in found],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", choices=tuple(CASES), default="writers")
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--sweeps", type=int)
    parser.add_argument("--keep", type=Path, help="a file of one line per seed; what is there is not done again")
    said = parser.parse_args()
    setting = CASES[said.case]
    setting = setting._replace(epochs=said.epochs or setting.epochs, sweeps=said.sweeps or setting.sweeps)
    kept: Path | None = said.keep
    done = read_runs(kept)
    found = []
    for seed in said.seeds or range(setting.seeds):
        one = next((old for old in done if old["seed"] == seed), None)
        if one is None:
            one = figures(said.case, seed, setting)
            if kept:
                with kept.open("a") as file:
                    file.write(json.dumps(one) + "\n")
        found.append(one)
    print(json.dumps({"case": said.case, "setting": setting._asdict(), **summary(found)}, indent=1))


if __name__ == "__main__":
    main()
