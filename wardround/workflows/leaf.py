"""LEAF's reference runs: one data set of natural clients, five ways to train, figures over clients and what they cost.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018. Accuracy is that on the clients' test rows: by sample
(every row counts the same), by device (every client does), at the 10th, 50th and 90th percentile of the clients, and by
hierarchy (such as the play) where the data have one. Costs are summed over all clients up to the round in which the
accuracy by sample first reaches the target: operations of the gradients, bytes down and up.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.core.contracts import Algorithm, Model, Report
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.core.quality import Quality
from wardround.engine import registry
from wardround.engine.machine.operations import operations_per_row
from wardround.engine.participation import Participation, everyone, random_cohort
from wardround.engine.simulate import Simulation
from wardround.evaluate.summary import PERCENTILES

METHODS = ("minibatch_sgd", "fed_avg", "reptile", "local", "global_iid")
LOCAL_PASSES = 20
"""Passes of each client over its own rows where it trains alone."""


class LeafTask(NamedTuple):
    """A set with the model and the settings that it is trained with."""

    dataset: str
    settings: Mapping[str, Any]
    model: str
    model_settings: Mapping[str, Any]
    learning_rate: float
    sgd_rate: float
    """Of minibatch SGD, which takes one step a round."""
    cohort: int = 10
    batch_size: int = 10
    rounds: int = 100
    target: float = 0.75
    needs_path: bool = False


WIDE: Mapping[str, Any] = {"dense": 2048}


def of_files(name: str, model: str, model_settings: Mapping[str, Any], rate: float, **told: Any) -> LeafTask:
    """A set that is read from LEAF's own files."""
    settings = {"sgd_rate": rate, **told}
    return LeafTask("leaf_files", {"name": name}, model, model_settings, rate, needs_path=True, **settings)


SETS: Mapping[str, LeafTask] = {
    "synthetic": LeafTask("leaf_synthetic", {}, "logistic", {}, 0.1, 0.1, batch_size=5, target=0.6),
    "mnist_writers": LeafTask(
        "mnist_writers", {}, "cnn", {"channels": (16, 32), "dense": 128}, 0.1, 0.1, rounds=50, target=0.9
    ),
    "shakespeare_roles": LeafTask(
        "shakespeare_roles", {"step": 40}, "lstm", {"hidden": (64, 64)}, 0.8, 0.8, rounds=20, target=0.3
    ),
    "imdb_films": LeafTask("imdb_films", {}, "logistic", {}, 0.05, 0.05, target=0.75),
    "femnist": of_files("femnist", "cnn", WIDE, 4e-3, sgd_rate=6e-2),
    "sent140": of_files("sent140", "logistic", {}, 3e-4),
    "celeba": of_files("celeba", "cnn", WIDE, 1e-3, batch_size=5),
    "reddit": of_files("reddit", "lstm", {"embedding": 200}, 8.0, batch_size=5, target=0.1),
    "shakespeare": of_files("shakespeare", "lstm", {}, 0.8, target=0.4),
}
"""The appendix of LEAF names models and rates; where it does not, they are ours (see docs/how-to/leaf.md)."""


class LeafRun(NamedTuple):
    """What to run; none takes the set's own."""

    name: str
    methods: Sequence[str] = METHODS
    path: str = ""
    images: str = ""
    fewest: int | None = None
    rounds: int | None = None
    cohort: int | None = None
    target: float | None = None
    seed: int = 0


def run_leaf(asked: LeafRun, on_method: Callable[[str], None] = lambda name: None) -> Report:
    """Statistics of the set, and for each method its figures and costs."""
    task = task_of(asked)
    federation = load_clients(task, asked)
    if asked.cohort is not None and asked.cohort > len(federation.sites):
        raise Refusal(
            f"{asked.cohort} clients were asked for each round, and the set {asked.name} has {len(federation.sites)}",
            where="leaf --cohort",
            remedy=f"choose a cohort from 1 to {len(federation.sites)}",
        )
    component = registry.find("model", task.model)
    model: Model = component.build(federation.task, where=f"leaf {asked.name}", **task.model_settings)
    found: Report = {"set": asked.name, "statistics": statistics(federation), "target": task.target, "methods": {}}
    for name in asked.methods:
        on_method(name)
        try:
            found["methods"][name] = measure(name, task, model, federation, asked.seed)
        except Refusal as refusal:  # such as models of all clients that do not fit into the memory
            found["methods"][name] = {"refused": str(refusal)}
            is_last = len(found["methods"]) == len(asked.methods)
            if is_last and all("refused" in one for one in found["methods"].values()):
                raise  # nothing is left to tell
    return found


def task_of(asked: LeafRun) -> LeafTask:
    if asked.name not in SETS:
        remedy = registry.suggest_name(asked.name, tuple(SETS))
        raise Refusal(f"there is no LEAF set called '{asked.name}'", where="leaf", remedy=remedy)
    unknown = [name for name in asked.methods if name not in METHODS]
    if unknown:
        remedy = registry.suggest_name(unknown[0], METHODS)
        raise Refusal(f"there is no reference method called '{unknown[0]}'", where="leaf --methods", remedy=remedy)
    task = SETS[asked.name]
    if task.needs_path and not asked.path:
        raise Refusal(
            f"{asked.name} is read from files in LEAF's own format, and none were named",
            where="leaf --path",
            remedy="give the folder that LEAF's scripts made, with its folders train and test",
        )
    if asked.path and not task.needs_path:
        raise Refusal(f"the set {asked.name} is not read from a path", where="leaf --path", remedy="leave it out")
    if asked.images and asked.name != "celeba":
        raise Refusal(f"the set {asked.name} has no folder of images", where="leaf --images", remedy="leave it out")
    said: dict[str, Any] = {"rounds": asked.rounds, "cohort": asked.cohort, "target": asked.target}
    return task._replace(**{key: value for key, value in said.items() if value is not None})


def load_clients(task: LeafTask, asked: LeafRun) -> Federation:
    more: dict[str, Any] = {"path": asked.path} if task.needs_path else {}
    more |= {"images": asked.images} if asked.images else {}
    component = registry.find("dataset", task.dataset)
    if asked.fewest is not None:
        if all(one.name != "fewest" for one in component.parameters):
            raise Refusal(
                f"the set {asked.name} has no smallest number of rows a client",
                where="leaf --fewest",
                remedy="leave it out",
            )
        more |= {"fewest": asked.fewest}
    federation: Federation = component.build(where=f"leaf {asked.name}", **{**task.settings, **more})
    return federation


def statistics(federation: Federation) -> Report:
    """Devices, samples, and how these are spread over them (table 6.1)."""
    rows = federation.counts.sum(axis=1)
    return {
        "devices": len(rows),
        "samples": int(rows.sum()),
        "mean": float(rows.mean()),
        "sd": float(rows.std()),
        "smallest": int(rows.min()),
        "largest": int(rows.max()),
    }


def algorithm_of(name: str, task: LeafTask, model: Model) -> Algorithm:
    mean = registry.find("aggregator", "weighted_mean").build()
    rate, size = task.learning_rate, task.batch_size
    settings: dict[str, tuple[str, dict[str, Any]]] = {
        "minibatch_sgd": ("fed_sgd", {"learning_rate": task.sgd_rate, "batch_size": size}),
        "fed_avg": ("fed_avg", {"learning_rate": rate, "batch_size": size}),
        "reptile": ("meta", {
            "kind": "reptile", "inner_learning_rate": rate, "inner_batch_size": size, "batch_size": size,
            "outer_learning_rate": 1.0,
        }),
        "local": ("local", {"learning_rate": rate, "batch_size": size}),
        "global_iid": ("centralized", {"learning_rate": rate, "batch_size": size, "solver": "descent"}),
    }  # fmt: skip
    algorithm, words = settings[name]
    made: Algorithm = registry.find("algorithm", algorithm).build(model, mean, where=f"leaf, {name}", **words)
    return made


def plan_of(name: str, task: LeafTask, sites: int, seed: int) -> tuple[Participation, int]:
    """Who takes part, and in how many rounds; alone or in one place a round is a pass over all rows."""
    if name == "local":
        return everyone(sites), LOCAL_PASSES
    if name == "global_iid":
        return everyone(sites), max(1, round(task.rounds * task.cohort / sites))
    return random_cohort(sites, min(task.cohort, sites), seed), task.rounds


def measure(name: str, task: LeafTask, model: Model, federation: Federation, seed: int) -> Report:
    """Train one method and look at the test rows ten times on the way."""
    algorithm = algorithm_of(name, task, model)
    who, rounds = plan_of(name, task, len(federation.sites), seed)
    each = operations_of(name, task, model, federation)
    reached: Report | None = None
    course: list[float] = []
    done, down, up, operations = 0, 0, 0, 0.0
    looks = sorted({-(-rounds * part // 10) for part in range(1, 11)})
    with Simulation(federation, seed=seed, largest_cohort=max(1, who.largest)) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(seed)))
        for look in looks:
            some = [(number, who.cohort(number)) for number in range(done + 1, look + 1)]
            progress, records = engine.train(algorithm, progress, some)
            down, up = down + sum(one.bytes_down for one in records), up + sum(one.bytes_up for one in records)
            operations += each(records)
            quality = engine.judge(algorithm, progress, "test")
            course.append(float(quality.accuracy or 0.0))
            done = look
            if reached is None and course[-1] >= task.target:
                reached = {"round": done, "operations": operations, "bytes_down": down, "bytes_up": up}
    spent = {"round": done, "operations": operations, "bytes_down": down, "bytes_up": up}
    return {"label": name, **figures(quality, federation), "course": course, "reached": reached, "spent": spent}


def operations_of(name: str, task: LeafTask, model: Model, federation: Federation) -> Callable[[Sequence[Any]], float]:
    """From rounds to the operations of their gradients: every row once, or one batch a client for minibatch SGD."""
    row = tuple(jax.ShapeDtypeStruct(part.shape[1:], part.dtype) for part in (federation.x, federation.y))
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    per_row = operations_per_row(model, shapes, (row[0], row[1]))
    batch = task.batch_size if name == "minibatch_sgd" else None
    return lambda records: per_row * sum(one.rows if batch is None else batch * one.count for one in records)


def figures(quality: Quality, federation: Federation) -> Report:
    """Accuracy over the clients that have test rows."""
    assert quality.right is not None
    shares = quality.right / quality.rows
    told: Report = {
        "by_sample": float(quality.right.sum() / quality.rows.sum()),
        "by_device": float(shares.mean()),
        "percentiles": dict(zip(map(str, PERCENTILES), np.percentile(shares, PERCENTILES).tolist(), strict=True)),
        "devices": len(shares),
    }
    for hierarchy, values in federation.groups.items():
        home = dict(zip(federation.sites, values[np.minimum(federation.first, len(values) - 1)], strict=True))
        groups = np.array([home[site] for site in quality.sites])
        told["by_" + hierarchy] = {
            str(group): float(quality.right[groups == group].sum() / quality.rows[groups == group].sum())
            for group in np.unique(groups)
        }
    return told
