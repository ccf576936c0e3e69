"""Compression of the model that is sent, and dropout of filters, on CIFAR-10: figures 2.3 and 2.4 in small form.

The all-convolutional "Model C" (Springenberg et al. 2015), with 8 and 16 filters a layer where the paper has 96 and
192; pictures dealt out at random to 1,000 clients with 50 each (the thesis: 100 with 500), ten in a round, one pass in
batches of 10, rate 0.05. Accuracy on the test pictures of 200 clients, the same for all methods; other first models and
cohorts in every repeat. The tables show which settings follow the uncompressed run, not what such a network can reach.

    python -m benchmarks.cifar --rounds 60 --repeats 2

prints a table; needs WARDROUND_DATA with the folder cifar10. `--keep FILE` as in
`fewer_bytes`: what is done already is taken from there.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.federated_dropout import federated_dropout
from wardround.core.chain import chain
from wardround.core.contracts import Transform
from wardround.data.datasets.images.cifar10 import cifar10
from wardround.engine.participation import random_cohort
from wardround.engine.simulate import Simulation
from wardround.models.images.all_conv import all_conv
from wardround.transforms.compression import compression
from wardround.transforms.hadamard import hadamard
from wardround.transforms.kashin import kashin
from wardround.transforms.quantize import quantize
from wardround.transforms.subsample import subsample

COHORT, CLIENTS, JUDGED, FILTERS, RATE = 10, 1_000, 200, 8, 0.05


class Setup(NamedTuple):
    transform: Transform | None = None
    width: float = 1.0
    rescale: bool = False


def setups() -> dict[str, Setup]:
    bases = {"none": [], "hadamard": [hadamard(direction="down")], "kashin": [kashin(direction="down")]}
    grid = {
        f"down: {basis}, q {bits}": Setup(chain([*before, quantize(bits=bits, direction="down")]))
        for bits in (2, 4)
        for basis, before in bases.items()
    }
    half = chain(
        [kashin(direction="down"), subsample(fraction=0.5, direction="down"), quantize(bits=8, direction="down")]
    )
    return {
        "uncompressed": Setup(),
        **grid,
        "down: kashin, s 0.5, q 8": Setup(half),
        "width 0.75": Setup(width=0.75),
        "width 0.5": Setup(width=0.5),
        "width 0.75 rescaled": Setup(width=0.75, rescale=True),
        "moderate, width 0.75 rescaled": Setup(compression(), 0.75, rescale=True),
    }


def run(federation: Any, setup: Setup, rounds: int, seed: int) -> dict[str, Any]:
    model = all_conv(federation.task, filters=FILTERS)
    settings: dict[str, Any] = {"learning_rate": RATE, "batch_size": 10}
    if setup.width == 1.0:
        algorithm = fed_avg(model, weighted_mean(), **settings)
    else:
        algorithm = federated_dropout(model, weighted_mean(), width=setup.width, rescale=setup.rescale, **settings)
    who, judged = random_cohort(CLIENTS, COHORT, seed), np.arange(JUDGED)
    with Simulation(
        federation, seed=seed, transform=setup.transform, largest_cohort=COHORT, evaluated=judged
    ) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(seed)))
        down, up = engine.message_bytes(algorithm, progress)
        progress, _ = engine.train(algorithm, progress, [(n, who.cohort(n)) for n in range(1, rounds + 1)])
        quality = engine.judge(algorithm, progress, "test")
    return {"accuracy": quality.accuracy, "loss": quality.mean_loss, "bytes_down": down, "bytes_up": up}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compression and dropout on CIFAR-10; prints a table.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--setups", nargs="*", default=list(setups()), choices=list(setups()))
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    kept: Path | None = options.keep
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept and kept.exists() else []
    federation = cifar10(clients=CLIENTS)
    print("| | down | up | accuracy, % | loss |")
    print("|---|---|---|---|---|")
    whole: dict[str, Any] = {}
    for name in ["uncompressed", *(one for one in options.setups if one != "uncompressed")]:
        found = []
        for seed in range(options.repeats):
            key = {"setup": name, "seed": seed, "rounds": options.rounds}
            one = next((old for old in done if old | key == old), None)
            if one is None:
                one = {**key, **run(federation, setups()[name], options.rounds, seed)}
                if kept:
                    with kept.open("a") as file:
                        file.write(json.dumps(one) + "\n")
            found.append(one)
        whole = whole or found[0]
        sent = " | ".join(f"{whole[way] / found[0][way]:.1f} ×" for way in ("bytes_down", "bytes_up"))
        right = ", ".join(f"{100 * one['accuracy']:.1f}" for one in found)
        print(f"| {name} | {sent} | {right} | {np.mean([one['loss'] for one in found]):.3f} |", flush=True)


if __name__ == "__main__":
    main()
