"""Does FedAvg diverge with many local passes? Figure 6.2 of the thesis behind LEAF (Caldas, ch. 6) in small form.

    python -m benchmarks.local_epochs synthetic --rounds 60 --repeats 3
    python -m benchmarks.local_epochs roles --rounds 12 --repeats 1

`synthetic`: LEAF's synthetic set, a thousand devices, ten of them in a round, logistic regression, batches of 5, rate
0.1. `roles`: the next character in Shakespeare's roles (needs WARDROUND_DATA), a row every 80 characters, ten in a
round, an LSTM of 2 x 64 units, batches of 10, rate 0.8 as in LEAF's appendix. The training loss after some rounds, over
all devices or every fourth role, for several numbers of local passes; other first models and cohorts in every repeat,
the same ones for all. Prints the tables of docs/results/local_epochs.md.
"""

import argparse
import sys
from typing import NamedTuple

import jax
import numpy as np

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Model
from wardround.core.federation import Federation
from wardround.data.datasets.leaf.leaf_synthetic import leaf_synthetic
from wardround.data.datasets.leaf.shakespeare_roles import shakespeare_roles
from wardround.engine.participation import random_cohort
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic
from wardround.models.lstm import lstm

COHORT = 10


class Case(NamedTuple):
    """A set with its model, and how its clients train."""

    federation: Federation
    model: Model
    rate: float
    batch: int
    passes: tuple[int, ...]
    judged: int = 1
    """Every so many clients are asked for their loss."""


def synthetic() -> Case:
    federation = leaf_synthetic()
    return Case(federation, logistic(federation.task), 0.1, 5, (1, 5, 20, 50))


def roles() -> Case:
    federation = shakespeare_roles(step=80)
    return Case(federation, lstm(federation.task, hidden=(64, 64)), 0.8, 10, (1, 5, 20), judged=4)


CASES = {"synthetic": synthetic, "roles": roles}


def main() -> None:
    parser = argparse.ArgumentParser(description="Training loss of FedAvg by local passes; prints a table.")
    parser.add_argument("case", nargs="?", choices=list(CASES), default="synthetic")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--passes", type=int, nargs="*", help="instead of those of the case")
    options = parser.parse_args()
    case = CASES[options.case]()
    looks = [options.rounds // 6, options.rounds // 3, 2 * options.rounds // 3, options.rounds]
    heads = " | ".join(f"loss, round {look}" for look in looks)
    print(f"| local passes | {heads} | test accuracy |")
    print("|---|" + "---|" * (len(looks) + 1))
    for passes in options.passes or case.passes:
        algorithm = fed_avg(
            case.model, weighted_mean(), learning_rate=case.rate, batch_size=case.batch, local_epochs=passes
        )
        losses, right = [], []
        for repeat in range(options.repeats):
            draw = random_cohort(len(case.federation.sites), COHORT, repeat)
            asked = np.arange(0, len(case.federation.sites), case.judged)
            with Simulation(case.federation, seed=repeat, largest_cohort=COHORT, evaluated=asked) as engine:
                progress = engine.begin(algorithm, case.model.init(jax.random.key(repeat)))
                seen, done = [], 0
                for look in looks:
                    rounds = [(number, draw.cohort(number)) for number in range(done + 1, look + 1)]
                    progress, _ = engine.train(algorithm, progress, rounds)
                    seen.append(engine.judge(algorithm, progress, "train").mean_loss)
                    done = look
                losses.append(seen)
                right.append(engine.judge(algorithm, progress, "test").accuracy or 0.0)
            print(f"  {passes} passes, repeat {repeat}: {seen}, {right[-1]:.4f}", file=sys.stderr, flush=True)
        means, spread = np.mean(losses, axis=0), np.std(losses, axis=0, ddof=min(1, len(losses) - 1))
        told = " | ".join(f"{mean:.2f} ± {sd:.2f}" for mean, sd in zip(means, spread, strict=True))
        print(f"| {passes} | {told} | {100 * np.mean(right):.1f} % |", flush=True)


if __name__ == "__main__":
    main()
