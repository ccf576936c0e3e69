"""Accuracy by the share of units that sites train: figure 2.4 of the thesis in small form, on digits by their writers.

Ten writers a round, one pass, batches of 10, learning rate 0.15, as there; the network has 8 and 16 filters and 64
units (the thesis: 32, 64 and 512). The model is judged on all writers' test rows. Other first models and other cohorts
in every repeat, the same ones for all widths. Run `python -m benchmarks.dropout_rates --rounds 42 --repeats 3` (needs
WARDROUND_DATA); it prints the table of docs/results/dropout.md. `--selections rolling ordered` trains those alone.
"""

import argparse
from typing import Any

import jax
import numpy as np

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.federated_dropout import federated_dropout
from wardround.data.datasets.mnist_writers import mnist_writers
from wardround.engine.participation import random_cohort
from wardround.engine.simulate import Simulation
from wardround.models.cnn import cnn

CASES: tuple[dict[str, Any], ...] = (
    *({"width": width} for width in (1.0, 0.875, 0.75, 0.625, 0.5)),
    {"width": 0.5, "merge": "zeros"},
    *({"width": width, "selection": selection} for selection in ("rolling", "ordered") for width in (0.75, 0.5)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy of federated dropout by width; prints a table.")
    parser.add_argument("--rounds", type=int, default=42)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--selections", nargs="*", default=["random", "rolling", "ordered"])
    options = parser.parse_args()
    federation = mnist_writers()
    model = cnn(federation.task, channels=(8, 16), dense=64)
    looks = [options.rounds // 3, 2 * options.rounds // 3, options.rounds]
    heads = " | ".join(f"round {look}" for look in looks)
    print(f"| width | selection | merge | bytes down | {heads} |")
    print("|---|---|---|---|" + "---|" * len(looks))
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves(model.init(jax.random.key(0))))
    for case in (one for one in CASES if one.get("selection", "random") in options.selections):
        algorithm = federated_dropout(model, weighted_mean(), learning_rate=0.15, batch_size=10, **case)
        found = []
        for repeat in range(options.repeats):
            draw = random_cohort(len(federation.sites), 10, repeat)
            with Simulation(federation, seed=repeat, largest_cohort=10) as engine:
                progress = engine.begin(algorithm, model.init(jax.random.key(repeat)))
                down, _ = engine.message_bytes(algorithm, progress)
                seen, done = [], 0
                for look in looks:
                    rounds = [(number, draw.cohort(number)) for number in range(done + 1, look + 1)]
                    progress, _ = engine.train(algorithm, progress, rounds)
                    seen.append(engine.judge(algorithm, progress, "test").accuracy or 0.0)
                    done = look
            found.append(seen)
        means, spread = np.mean(found, axis=0), np.std(found, axis=0, ddof=min(1, len(found) - 1))
        told = " | ".join(f"{100 * mean:.1f} ± {100 * sd:.1f} %" for mean, sd in zip(means, spread, strict=True))
        words = (case.get("selection", "random"), case.get("merge", "holders"))
        print(f"| {case['width']:g} | {words[0]} | {words[1]} | {down / whole:.2f} | {told} |", flush=True)


if __name__ == "__main__":
    main()
