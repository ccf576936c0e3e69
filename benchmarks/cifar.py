"""Compression of the model that is sent, and dropout of filters, on CIFAR-10: figures 2.3 to 2.5 in small form.

The all-convolutional "Model C" (Springenberg et al. 2015), with 16 and 32 filters a layer where the paper has 96 and
192; pictures dealt out at random to 100 clients with 500 each, ten in a round, one pass in batches of 10, rate 0.05, as
in the thesis. Accuracy on the test pictures of 40 clients (4,000), the same for all methods; other first models
and cohorts in every repeat. The tables show which settings follow the uncompressed run, not what such a network can
reach: the thesis trains for hundreds of rounds.

    python -m benchmarks.cifar --rounds 40 --repeats 1 --setups "moderate, width 0.75 rescaled"

prints a table; needs WARDROUND_DATA with the folder cifar10. `--keep FILE` as in `fewer_bytes`: what is done already is
taken from there.
"""

import argparse
import json
import sys
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

COHORT, CLIENTS, JUDGED, FILTERS, RATE, EVERY = 10, 100, 40, 16, 0.05, 10


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
        "moderate": Setup(compression()),
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
        accuracies, losses = [], []
        for done in range(0, rounds, EVERY):
            some = [(number, who.cohort(number)) for number in range(done + 1, min(rounds, done + EVERY) + 1)]
            progress, _ = engine.train(algorithm, progress, some)
            quality = engine.judge(algorithm, progress, "test")
            accuracies.append(quality.accuracy)
            losses.append(quality.mean_loss)
            print(
                f"  after {some[-1][0]} rounds: {accuracies[-1]:.4f}, loss {losses[-1]:.3f}",
                file=sys.stderr,
                flush=True,
            )
    return {"accuracies": accuracies, "losses": losses, "bytes_down": down, "bytes_up": up}


def is_so_far(kept: dict[str, Any], name: str, seed: int, rounds: int) -> bool:
    """Whether a kept run is this one, or a longer one."""
    return (kept["setup"], kept["seed"]) == (name, seed) and kept["rounds"] >= rounds


def begun(kept: dict[str, Any], rounds: int) -> dict[str, Any]:
    """The first rounds of a kept run."""
    return {**kept, **{word: kept[word][: -(-rounds // EVERY)] for word in ("accuracies", "losses")}}


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
    looks = [min(options.rounds, done + EVERY) for done in range(0, options.rounds, EVERY)]
    print("| | smaller down | up | " + " | ".join(f"round {look}" for look in looks) + " | loss |")
    print("|---|---|---|---|" + "---|" * len(looks))
    whole: dict[str, Any] = {}
    for name in ["uncompressed", *(one for one in options.setups if one != "uncompressed")]:
        found = []
        for seed in range(options.repeats):
            key = {"setup": name, "seed": seed, "rounds": options.rounds}
            one = next((begun(old, options.rounds) for old in done if is_so_far(old, name, seed, options.rounds)), None)
            if one is None:
                one = {**key, **run(federation, setups()[name], options.rounds, seed)}
                if kept:
                    with kept.open("a") as file:
                        file.write(json.dumps(one) + "\n")
            found.append(one)
        whole = whole or found[0]
        sent = " | ".join(f"{whole[way] / found[0][way]:.1f} ×" for way in ("bytes_down", "bytes_up"))
        right = " | ".join(f"{100 * one:.1f} %" for one in np.mean([one["accuracies"] for one in found], axis=0))
        print(f"| {name} | {sent} | {right} | {np.mean([one['losses'][-1] for one in found]):.3f} |", flush=True)


if __name__ == "__main__":
    main()
