"""Does matching units before averaging help? `python -m benchmarks.matched_averaging` prints one JSON object.

Handwritten digits of 40 writers at four sites of ten writers each (`mnist_writers`), a dense network with 32 hidden
units. Every site first trains from random weights of its own for `--epochs` passes. Then, on the test digits of all
sites: the mean accuracy of the sites' own models, the accuracy of their plain average, of the matched average after one
sweep of `fed_ma` (two rounds, the second with another training of the last layer), and of their ensemble (mean
probabilities). Beside it FedAvg from one common start with as many rounds of as many passes. Means over `--seeds`.
"""

import argparse
import json
from typing import Any

import jax
import numpy as np

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.local import local
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.images.fed_ma import fed_ma
from wardround.core.contracts import Algorithm, Task
from wardround.core.federation import PARTS, Federation, assemble
from wardround.data.datasets.mnist_writers import mnist_writers
from wardround.engine.simulate import Simulation
from wardround.models.mlp import mlp

SITES, WRITERS = 4, 10


def federation_of(seed: int) -> Federation:
    """Four sites of ten writers each, drawn by the seed."""
    whole = mnist_writers(seed=seed)
    drawn = np.random.default_rng(seed).choice(len(whole.sites), SITES * WRITERS, replace=False)
    pieces = []
    for site in range(SITES):
        parts = []
        for part in PARTS:
            first, count = whole.part(part)
            own = drawn[site * WRITERS : (site + 1) * WRITERS]
            rows = np.concatenate([np.arange(first[one], first[one] + count[one]) for one in own])
            parts.append((whole.x[rows], whole.y[rows]))
        pieces.append((f"site-{site}", parts))
    return assemble(pieces, Task((28, 28, 1), whole.task.classes, "digit"))


def trained(algorithm: Algorithm, federation: Federation, params: Any, rounds: int, seed: int) -> Any:
    with Simulation(federation, seed=seed) as engine:
        progress = engine.begin(algorithm, params)
        everybody = np.arange(SITES)
        return engine.train(algorithm, progress, [(number, everybody) for number in range(1, rounds + 1)])[0]


def figures(seed: int, epochs: int) -> dict[str, float]:
    federation = federation_of(seed)
    model = mlp(federation.task, hidden=(32,))
    said: dict[str, Any] = {"local_epochs": epochs, "learning_rate": 0.1, "batch_size": 16}
    predict, init = jax.jit(model.predict), jax.jit(model.init)
    rows = federation.rows_of("test")
    x, y = federation.x[rows], federation.y[rows]

    def right(predicted: Any) -> float:
        return float(np.mean(np.argmax(np.asarray(predicted), axis=1) == y))

    common = init(jax.random.key(seed))
    # The starts that fed_ma gives its sites, one site at a time, so that both begin with the same weights.
    own = []
    for site in range(SITES):
        start = init(jax.random.fold_in(jax.random.key(17), site))
        after = trained(local(model, **said), federation, start, 1, seed)
        own.append({name: np.asarray(array)[site] for name, array in after.clients.items()})
    counts = federation.counts[:, 0]
    plain = {name: np.average([one[name] for one in own], axis=0, weights=counts) for name in own[0]}
    told = [np.asarray(predict(one, x)) for one in own]
    matched = trained(fed_ma(model, own_start=True, **said), federation, common, 2, seed)
    averaged = trained(fed_avg(model, weighted_mean(), **said), federation, common, 2, seed)
    return {
        "own": float(np.mean([right(one) for one in told])),
        "plain_average": right(predict(plain, x)),
        "matched": right(predict(jax.device_get(matched.server["params"]), x)),
        "ensemble": right(np.mean(told, axis=0)),
        "fed_avg_common_start": right(predict(jax.device_get(averaged.server), x)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10)
    said = parser.parse_args()
    found = [figures(seed, said.epochs) for seed in range(said.seeds)]
    mean = {name: round(float(np.mean([one[name] for one in found])), 4) for name in found[0]}
    spread = {name: round(float(np.std([one[name] for one in found], ddof=1)), 4) for name in found[0]}
    print(json.dumps({"seeds": said.seeds, "epochs": said.epochs, "accuracy": mean, "sd": spread}, indent=1))


if __name__ == "__main__":
    main()
