"""Kashin's representation against the Hadamard transform on a trained model, and what compression and dropout save.

Figure A.1 of the thesis (Caldas, app. A) in small: a network is trained on digits by their writers, then its parameters
are rotated, quantized to few bits and read again; told are the squared error (in parts of the parameters' own square,
mean over draws) and the accuracy on all writers' test digits. The second table has the bytes of the thesis' own network
for MNIST (32 and 64 filters, 512 units) each way, for its moderate scheme as printed (5 bits down) and with 4 bits, and
operations of a row's gradient, with all units and with three quarters of them. Run `python -m benchmarks.trained_model`
(needs WARDROUND_DATA); it prints the tables of docs/results/fewer_bytes.md.
"""

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.federated_dropout import federated_dropout
from wardround.core.chain import chain
from wardround.core.contracts import Message, Transform
from wardround.data.datasets.mnist_writers import mnist_writers
from wardround.engine.machine.operations import operations_of_training
from wardround.engine.participation import random_cohort
from wardround.engine.simulate import Simulation
from wardround.models.cnn import cnn
from wardround.transforms.compression import compression
from wardround.transforms.hadamard import hadamard
from wardround.transforms.kashin import kashin
from wardround.transforms.quantize import quantize
from wardround.transforms.subsample import subsample

BITS = (1, 2, 3, 4, 6)
BASES: dict[str, list[Transform]] = {
    "none": [],
    "hadamard": [hadamard(direction="down")],
    "kashin": [kashin(direction="down")],
}


def damage(rounds: int, draws: int) -> None:
    federation = mnist_writers()
    model = cnn(federation.task, channels=(8, 16), dense=64)
    algorithm = fed_avg(model, weighted_mean(), learning_rate=0.15, batch_size=10)
    who = random_cohort(len(federation.sites), 10, 0)
    with Simulation(federation, seed=0, largest_cohort=10) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        progress, _ = engine.train(algorithm, progress, [(n, who.cohort(n)) for n in range(1, rounds + 1)])
        params = jax.device_get(algorithm.params(progress.server))
        whole = float(engine.judge(algorithm, progress, "test").accuracy or 0.0)
        print(f"Trained for {rounds} rounds: {100 * whole:.2f} %\n")
        print("| basis | " + " | ".join(f"q {bits}" for bits in BITS) + " |")
        print("|---|" + "---|" * len(BITS))
        square = sum(float(np.square(array).sum()) for array in params.values())
        for basis, before in BASES.items():
            cells = []
            for bits in BITS:
                read = reader(chain([*before, quantize(bits=bits, direction="down")]), params)
                errors, right = [], []
                for draw in range(draws):
                    got = read(jax.random.key(draw))
                    errors.append(sum(float(np.square(got[name] - params[name]).sum()) for name in params) / square)
                    judged = replace(progress, server=got)
                    right.append(float(engine.judge(algorithm, judged, "test").accuracy or 0.0))
                cells.append(f"{np.mean(errors):.4f}, {100 * np.mean(right):.2f} %")
            print(f"| {basis} | " + " | ".join(cells) + " |", flush=True)
    print()


def reader(transform: Transform, params: dict[str, Any]) -> Any:
    """From a key to the parameters as a site reads them."""

    @jax.jit
    def read(given: dict[str, Any], key: jax.Array) -> Any:
        message = Message({"params": given})
        return transform.receive(transform.down(transform.init(message), message, key)).arrays["params"]

    return partial(read, params)


def with_four_bits() -> Transform:
    """The moderate scheme with 4 bits instead of 5 to the sites."""
    return chain(
        [kashin(), subsample(fraction=0.5), quantize(bits=4, direction="up"), quantize(bits=4, direction="down")]
    )


def savings() -> None:
    federation = mnist_writers()
    model = cnn(federation.task)
    plain = fed_avg(model, weighted_mean())
    params = model.init(jax.random.key(0))
    first: tuple[float, ...] | None = None
    print("| | down | up | operations |")
    print("|---|---|---|---|")
    for scheme, transform in (("none", None), ("moderate, q 5", compression()), ("moderate, q 4", with_four_bits())):
        for width in (1.0, 0.75):
            algorithm = plain if width == 1.0 else federated_dropout(model, weighted_mean(), width=width)
            with Simulation(federation, transform=transform, largest_cohort=10) as engine:
                sent = engine.message_bytes(algorithm, engine.begin(algorithm, params))
            found = (*sent, operations_of_training(algorithm, model, federation.task))
            first = first or found
            cells = " | ".join(f"{whole / own:.1f} ×" for whole, own in zip(first, found, strict=True))
            print(f"| {scheme}, width {width:g} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A trained model in few bits, and what is saved; prints two tables.")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    damage(options.rounds, options.draws)
    savings()


if __name__ == "__main__":
    main()
