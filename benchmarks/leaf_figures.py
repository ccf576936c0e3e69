"""Figure 6.3 and table 6.2 of the thesis behind LEAF (Caldas, ch. 6), in small form, on the sets that can be had.

    python -m benchmarks.leaf_figures films        # figure 6.3, left: accuracy over clients by their fewest rows (k)
    python -m benchmarks.leaf_figures systems      # figure 6.3, right: operations and bytes to reach an accuracy
    python -m benchmarks.leaf_figures synthetic    # table 6.2: each device alone, against FedAvg
    python -m benchmarks.leaf_figures roles        # table 6.2: all rows in one place, against FedAvg
    python -m benchmarks.leaf_figures writers      # table 6.2: Reptile against FedAvg, on writers that never trained

Each prints a table of docs/results/leaf.md (`--seeds`: other first models, cohorts and, where they are made up, data).
Film reviews stand for Sent140, digits by writer for FEMNIST, Shakespeare's roles for Reddit; CelebA is not to be had.
All but `synthetic` need WARDROUND_DATA.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.fewer_bytes import spread
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.centralized import centralized
from wardround.algorithms.baselines.local import local
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.fed_sgd import fed_sgd
from wardround.algorithms.fine_tune import fine_tune
from wardround.algorithms.meta import meta
from wardround.core import trees
from wardround.core.contracts import Algorithm, Message, Model, Params, Tree
from wardround.core.federation import Federation
from wardround.core.quality import Quality
from wardround.data.datasets.leaf.imdb_films import imdb_films
from wardround.data.datasets.leaf.leaf_synthetic import leaf_synthetic
from wardround.data.datasets.leaf.shakespeare_roles import shakespeare_roles
from wardround.data.datasets.mnist_writers import mnist_writers
from wardround.engine.machine.operations import operations_per_row
from wardround.engine.participation import Participation, everyone, random_cohort
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import row_of
from wardround.models.cnn import cnn
from wardround.models.logistic import logistic
from wardround.models.lstm import lstm

BOX = (10, 25, 50, 75, 90)
FEWEST = (3, 5, 10)
TARGET, LOOK, MOST = 0.9, 5, 400
"""The accuracy to reach on digits, rounds between two looks, and rounds after which a run is given up."""
LOCAL_RATES = tuple(10.0**power for power in range(-3, 4))
LOCAL_PASSES = 20
TRAINING_WRITERS = 431
"""Of 539; the others are new to the model that they are judged with."""


class Run(NamedTuple):
    """One training: who learns what, how, and for how long."""

    federation: Federation
    model: Model
    algorithm: Algorithm
    who: Participation
    seed: int
    evaluated: np.ndarray[Any, Any] | None = None


@dataclass(frozen=True)
class RowsInGradients:
    """How many rows of a round are in a gradient: all, several times, or one batch a client."""

    passes: int = 1
    batch: int = 0

    def count(self, rows: int, clients: int) -> int:
        return self.batch * clients if self.batch else self.passes * rows


def trained(run: Run, rounds: int, part: str = "test") -> Quality:
    """What the model of so many rounds does on one part of the evaluated clients' rows."""
    with Simulation(run.federation, seed=run.seed, largest_cohort=run.who.largest, evaluated=run.evaluated) as engine:
        progress = engine.begin(run.algorithm, run.model.init(jax.random.key(run.seed)))
        progress, _ = engine.train(run.algorithm, progress, [(n, run.who.cohort(n)) for n in range(1, rounds + 1)])
        return engine.judge(run.algorithm, progress, part)


def percent(shares: Sequence[float]) -> str:
    """Mean over seeds, and their standard deviation."""
    told = f"{100 * float(np.mean(shares)):.2f} %"
    return told if len(shares) < 2 else f"{told} ± {100 * float(np.std(shares, ddof=1)):.2f}"


def films(seeds: int) -> None:
    """The same model for clients with k reviews or more: where does the accuracy of single clients go?"""
    heads = " | ".join(f"{one}th" for one in BOX)
    print(f"| k | films | by sample | by film | {heads} |\n|---|---|---|---|" + "---|" * len(BOX))
    for fewest in FEWEST:
        federation = imdb_films(fewest=fewest)
        model = logistic(federation.task)
        algorithm = fed_avg(model, weighted_mean(), learning_rate=0.05, batch_size=10)
        boxes, samples, devices = [], [], []
        for seed in range(seeds):
            who = random_cohort(len(federation.sites), 10, seed)
            quality = trained(Run(federation, model, algorithm, who, seed), 100)
            shares = right_of(quality) / quality.rows
            boxes.append(np.percentile(shares, BOX))
            samples.append(quality.accuracy or 0.0)
            devices.append(float(shares.mean()))
        box = " | ".join(f"{100 * one:.0f} %" for one in np.mean(boxes, axis=0))
        print(f"| {fewest} | {len(federation.sites):,} | {percent(samples)} | {percent(devices)} | {box} |", flush=True)


def right_of(quality: Quality) -> np.ndarray[Any, Any]:
    assert quality.right is not None
    return quality.right


def systems(seeds: int) -> None:
    """Rounds, operations and bytes over all clients until the accuracy by sample is reached on the test digits."""
    federation = mnist_writers()
    model = cnn(federation.task, channels=(8, 16), dense=64)
    per_row = operations_per_row(model, jax.eval_shape(model.init, jax.random.key(0)), row_of(federation.task))
    mean = weighted_mean()
    typical = round(float(federation.counts[:, 0].mean()))
    cases: dict[str, tuple[int, Algorithm, RowsInGradients]] = {}
    for cohort in (3, 35):
        for epochs in (1, 5):
            cases[f"FedAvg, C {cohort}, E {epochs}"] = (
                cohort,
                fed_avg(model, mean, learning_rate=0.1, batch_size=10, local_epochs=epochs),
                RowsInGradients(passes=epochs),
            )
        for share in (0.1, 0.5, 1.0):
            size = 0 if share == 1 else round(share * typical)
            cases[f"minibatch SGD, C {cohort}, {share:.0%} of a client's rows"] = (
                cohort,
                fed_sgd(model, mean, learning_rate=0.3, batch_size=size),
                RowsInGradients(batch=size),
            )
    print("| | rounds | operations | bytes up |\n|---|---|---|---|")
    for name, (cohort, algorithm, rows_of) in cases.items():
        found = [
            to_target(
                Run(federation, model, algorithm, random_cohort(len(federation.sites), cohort, seed), seed), rows_of
            )
            for seed in range(seeds)
        ]
        if any(one is None for one in found):
            print(f"| {name} | not within {MOST} | - | - |", flush=True)
            continue
        rounds, rows, up = np.mean(np.array(found, np.float64), axis=0)
        print(f"| {name} | {rounds:.0f} | {rows * per_row:.2g} | {up / 1e6:.1f} MB |", flush=True)


def to_target(run: Run, rows_of: RowsInGradients) -> tuple[int, int, int] | None:
    """Rounds, rows in gradients and bytes up until the look at which the target is reached; none: it is not."""
    rows = up = 0
    with Simulation(run.federation, seed=run.seed, largest_cohort=run.who.largest) as engine:
        progress = engine.begin(run.algorithm, run.model.init(jax.random.key(run.seed)))
        for done in range(0, MOST, LOOK):
            some = [(number, run.who.cohort(number)) for number in range(done + 1, done + LOOK + 1)]
            progress, records = engine.train(run.algorithm, progress, some)
            rows += sum(rows_of.count(one.rows, one.count) for one in records)
            up += sum(one.bytes_up for one in records)
            if (engine.judge(run.algorithm, progress, "test").accuracy or 0.0) >= TARGET:
                return done + LOOK, rows, up
    return None


def synthetic(seeds: int) -> None:
    """Each device alone, at the rate that suits its validation rows, against FedAvg with 10 devices in 100 rounds."""
    together, alone = [], []
    for seed in range(seeds):
        federation = leaf_synthetic(seed=seed)
        model, sites = logistic(federation.task), len(federation.sites)
        plain = fed_avg(model, weighted_mean(), learning_rate=0.1, batch_size=5)
        run = Run(federation, model, plain, random_cohort(sites, 10, seed), seed)
        together.append(trained(run, 100).accuracy or 0.0)
        alone.append(best_alone(run._replace(who=everyone(sites))))
    print_pair("synthetic", together, "each device alone", alone)


def best_alone(run: Run) -> float:
    """Accuracy by sample where every device takes the rate at which it does best on its validation rows."""
    looked: list[Mapping[str, tuple[float, float]]] = []
    tested: list[Mapping[str, tuple[int, int]]] = []
    for rate in LOCAL_RATES:
        own = run._replace(algorithm=local(run.model, learning_rate=rate, batch_size=5))
        checked, judged = (trained(own, LOCAL_PASSES, part) for part in ("validation", "test"))
        shares, losses = right_of(checked) / checked.rows, -checked.loss
        looked.append(dict(zip(checked.sites, zip(shares.tolist(), losses.tolist(), strict=True), strict=True)))
        pairs = zip(right_of(judged).tolist(), judged.rows.tolist(), strict=True)
        tested.append(dict(zip(judged.sites, pairs, strict=True)))
    right = rows = 0
    for site in tested[0]:
        told = [one.get(site, (0.0, 0.0)) for one in looked]
        # A device without validation rows takes the rate in the middle.
        best = max(range(len(told)), key=told.__getitem__) if site in looked[0] else len(told) // 2
        right, rows = right + tested[best][site][0], rows + tested[best][site][1]
    return right / rows


def roles(seeds: int) -> None:
    """Next characters: three passes over the rows of all roles in one place, against FedAvg with 10 in 100 rounds."""
    federation = shakespeare_roles(step=40)
    model, sites = lstm(federation.task, hidden=(64, 64)), len(federation.sites)
    together, pooled = [], []
    for seed in range(seeds):
        plain = fed_avg(model, weighted_mean(), learning_rate=0.8, batch_size=10)
        run = Run(federation, model, plain, random_cohort(sites, 10, seed), seed)
        together.append(trained(run, 100).accuracy or 0.0)
        # The thesis takes a rate smaller by the square root of 2 where all rows lie in one place.
        one_place = centralized(model, learning_rate=0.8 / 2**0.5, batch_size=10, solver="descent")
        pooled.append(trained(run._replace(algorithm=one_place, who=everyone(sites)), 3).accuracy or 0.0)
    print_pair("Shakespeare's roles", together, "all rows in one place", pooled)


def writers(seeds: int) -> None:
    """Reptile after five passes over a new writer's rows, FedAvg as it is, and FedAvg after the same five passes."""
    federation = mnist_writers()
    model = cnn(federation.task, channels=(8, 16), dense=64)
    new, rounds, mean = np.arange(TRAINING_WRITERS, len(federation.sites)), 100, weighted_mean()
    settings: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 10}
    reptile = meta(
        model, mean, kind="reptile", inner_learning_rate=0.1, inner_batch_size=10, batch_size=10,
        outer_learning_rate=1.0, personal_epochs=5,
    )  # fmt: skip
    algorithms = {
        "FedAvg": fed_avg(model, mean, **settings),
        "Reptile": with_decaying_rate(reptile, 2.0, rounds),
        "FedAvg, tuned at the writer": fine_tune(
            model, mean, personal_learning_rate=0.1, personal_epochs=5, **settings
        ),
    }
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        who = random_cohort(TRAINING_WRITERS, 5, seed)
        for name, algorithm in algorithms.items():
            quality = trained(Run(federation, model, algorithm, who, seed, new), rounds)
            found.setdefault(name, []).append(quality.accuracy or 0.0)
    print_pair("digits by writer", found["FedAvg"], "Reptile", found["Reptile"])
    print_pair("digits by writer", found["FedAvg"], "FedAvg, tuned", found["FedAvg, tuned at the writer"])


def with_decaying_rate(algorithm: Algorithm, first: float, rounds: int) -> Algorithm:
    """The common model moves `first` times the mean update at the beginning and not at all at the end."""

    def init(params: Params, sites: int) -> Tree:
        return {"own": algorithm.init(params, sites), "turn": jnp.zeros(())}

    def server(state: Tree, combined: Message) -> Tree:
        rate = first * (1 - state["turn"] / rounds)
        slower = {**combined.arrays, "update": trees.scale(combined.arrays["update"], rate)}
        return {"own": algorithm.server(state["own"], Message(slower, combined.meta)), "turn": state["turn"] + 1}

    return algorithm._replace(
        init=init,
        server=server,
        broadcast=lambda state: algorithm.broadcast(state["own"]),
        params=lambda state: algorithm.params(state["own"]),
    )


def print_pair(dataset: str, plain: Sequence[float], name: str, other: Sequence[float]) -> None:
    differences = [theirs - ours for theirs, ours in zip(other, plain, strict=True)]
    print("| set | FedAvg | beside it | accuracy | difference, points |\n|---|---|---|---|---|")
    print(f"| {dataset} | {percent(plain)} | {name} | {percent(other)} | {spread(differences)} |", flush=True)


STUDIES = {"films": films, "systems": systems, "synthetic": synthetic, "roles": roles, "writers": writers}


def main() -> None:
    parser = argparse.ArgumentParser(description="Figure 6.3 and table 6.2 of the thesis behind LEAF; prints a table.")
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    STUDIES[options.study](options.seeds)


if __name__ == "__main__":
    main()
