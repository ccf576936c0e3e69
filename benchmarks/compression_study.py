"""Figure 2.3 of the thesis in small, on MNIST by writer: `python -m benchmarks.compression_study > figures.json`.

Prints one JSON object. The model that goes to the sites is compressed by basis (none, Hadamard, Kashin) x fraction s x
bits q; answers come back as they are. Beside them the three schemes in both directions, EDEN and top_k. Everything else
is the same: 20 of 539 writers a round, one pass of batches of 10, a network of 64 hidden units (50,890 parameters), the
same three seeds. Told are the accuracy on all writers' test digits after the last round, its difference to the
uncompressed run of the same seed, and the bytes of one message each way. Needs WARDROUND_DATA.
"""

import json
import sys
from typing import Any

import jax
import numpy as np

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.chain import chain
from wardround.core.contracts import Transform
from wardround.data.datasets.mnist_writers import mnist_writers
from wardround.engine.participation import random_cohort
from wardround.engine.simulate import Simulation
from wardround.models.mlp import mlp
from wardround.transforms.compression import compression
from wardround.transforms.eden import eden
from wardround.transforms.hadamard import hadamard
from wardround.transforms.kashin import kashin
from wardround.transforms.quantize import quantize
from wardround.transforms.subsample import subsample
from wardround.transforms.top_k import top_k

SEEDS = (1, 2, 3)
ROUNDS, COHORT, RATE = 60, 20, 0.1
BASES = {"none": [], "hadamard": [hadamard(direction="down")], "kashin": [kashin(direction="down")]}


def downward(basis: str, fraction: float, bits: int) -> Transform:
    thinned = [subsample(fraction=fraction, direction="down")] if fraction < 1 else []
    return chain([*BASES[basis], *thinned, quantize(bits=bits, direction="down")])


def methods() -> dict[str, Transform | None]:
    grid = {
        f"down: {basis}, s {fraction:g}, q {bits}": downward(basis, fraction, bits)
        for basis in BASES
        for fraction in (1.0, 0.5)
        for bits in (2, 4, 8)
    }
    schemes = {scheme: compression(scheme=scheme) for scheme in ("aggressive", "moderate", "conservative")}
    later = {
        "moderate, hadamard": compression(basis="hadamard"),
        "eden 2": eden(bits=2),
        "eden 4": eden(bits=4),
        "top_k 0.02 up": top_k(fraction=0.02),
    }
    return {"uncompressed": None, **grid, **schemes, **later}


def study() -> dict[str, Any]:
    federation = mnist_writers()
    model = mlp(federation.task, hidden=(64,))
    algorithm = fed_avg(model, weighted_mean(), learning_rate=RATE, batch_size=10)
    found: dict[str, Any] = {}
    for name, transform in methods().items():
        accuracies = []
        for seed in SEEDS:
            drawn = random_cohort(len(federation.sites), COHORT, seed)
            with Simulation(federation, seed=seed, transform=transform, largest_cohort=COHORT) as engine:
                progress = engine.begin(algorithm, model.init(jax.random.key(seed)))
                rounds = [(number, drawn.cohort(number)) for number in range(1, ROUNDS + 1)]
                progress, _ = engine.train(algorithm, progress, rounds)
                accuracies.append(float(engine.judge(algorithm, progress, "test").accuracy or 0.0))
                down, up = engine.message_bytes(algorithm, progress)
        base = found.get("uncompressed", {}).get("accuracies", accuracies)
        differences = np.subtract(accuracies, base)
        found[name] = {
            "accuracies": [round(one, 4) for one in accuracies],
            "mean": round(float(np.mean(accuracies)), 4),
            "differences": [round(float(one), 4) for one in differences],
            "bytes_down": down,
            "bytes_up": up,
        }
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    return {"rounds": ROUNDS, "cohort": COHORT, "seeds": SEEDS, "methods": found}


if __name__ == "__main__":
    print(json.dumps(study(), indent=2))
