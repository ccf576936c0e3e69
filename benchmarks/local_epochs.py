"""Does FedAvg diverge with many local passes? Figure 6.2 of the thesis in small form, on LEAF's synthetic set.

A thousand devices, ten of them in a round, logistic regression, batches of 5, learning rate 0.1; the training loss over
all devices after some rounds, for several numbers of local passes. Other first cohorts in every repeat, the same ones
for all. Run `python -m benchmarks.local_epochs --rounds 60 --repeats 3`; it prints the table of
docs/results/local_epochs.md.
"""

import argparse

import jax
import numpy as np

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.data.datasets.leaf.leaf_synthetic import leaf_synthetic
from wardround.engine.participation import random_cohort
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic

EPOCHS = (1, 5, 20, 50)


def main() -> None:
    parser = argparse.ArgumentParser(description="Training loss of FedAvg by local passes; prints a table.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    federation = leaf_synthetic()
    model = logistic(federation.task)
    looks = [options.rounds // 6, options.rounds // 3, 2 * options.rounds // 3, options.rounds]
    heads = " | ".join(f"loss, round {look}" for look in looks)
    print(f"| local passes | {heads} | test accuracy |")
    print("|---|" + "---|" * (len(looks) + 1))
    for epochs in EPOCHS:
        algorithm = fed_avg(model, weighted_mean(), learning_rate=0.1, batch_size=5, local_epochs=epochs)
        losses, right = [], []
        for repeat in range(options.repeats):
            draw = random_cohort(len(federation.sites), 10, repeat)
            with Simulation(federation, seed=repeat, largest_cohort=10) as engine:
                progress = engine.begin(algorithm, model.init(jax.random.key(repeat)))
                seen, done = [], 0
                for look in looks:
                    rounds = [(number, draw.cohort(number)) for number in range(done + 1, look + 1)]
                    progress, _ = engine.train(algorithm, progress, rounds)
                    seen.append(engine.judge(algorithm, progress, "train").mean_loss)
                    done = look
                losses.append(seen)
                right.append(engine.judge(algorithm, progress, "test").accuracy or 0.0)
        means, spread = np.mean(losses, axis=0), np.std(losses, axis=0, ddof=min(1, len(losses) - 1))
        told = " | ".join(f"{mean:.2f} ± {sd:.2f}" for mean, sd in zip(means, spread, strict=True))
        print(f"| {epochs} | {told} | {100 * np.mean(right):.1f} % |", flush=True)


if __name__ == "__main__":
    main()
