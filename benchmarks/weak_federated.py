"""WeaSEL federated against central: `python -m benchmarks.weak_federated [PART...]` prints one JSON object a line.

Figure 5.5 of Caldas 2022 in form: the thesis' rules and parts (see `weak_data`), ROC-AUC on the test rows at the round
that was best on the validation rows, beside the majority vote and the end model that sees all labels. The settings of
every method are chosen on the validation rows alone, with seed 0. A part is imdb, mitbih (the end model is a
perceptron, as for reviews) or mitbih_cnn (figure D.10's network), and words after colons choose among its runs:
mitbih:fed_avg:0.
"""

import json
import sys
import time
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.weak_data import Clients, Rows, imdb_clients, mitbih_clients
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.centralized import centralized
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.fed_opt import fed_opt
from wardround.algorithms.fed_prox import fed_prox
from wardround.core.contracts import Algorithm, Model, Task
from wardround.engine.participation import random_cohort
from wardround.engine.simulate import Simulation
from wardround.models.weasel import weasel

DATA, SEEDS = ("imdb", "mitbih", "mitbih_cnn"), tuple(range(10))
METHODS = ("centralized", "fed_avg", "fed_prox", "fed_adam", "supervised")


class Plan(NamedTuple):
    """Rounds, how many clients take part in one, how often the model is judged, and the end model."""

    rounds: int
    cohort: int
    every: int
    end_model: Any


PLANS = {
    "imdb": Plan(240, 50, 24, "mlp"),
    "mitbih": Plan(40, 36, 4, "mlp"),
    "mitbih_cnn": Plan(120, 36, 6, "series_cnn"),
}
IN_ONE_PLACE = {"imdb": Plan(48, 1, 4, "mlp"), "mitbih_cnn": Plan(30, 1, 3, "series_cnn")}
"""A round of all rows is ten rounds of a tenth of the clients; 90 steps, where one of records has three at each."""


class Settings(NamedTuple):
    """What is chosen for a method on the validation rows."""

    learning_rate: float
    local_epochs: int = 1
    momentum: float = 0.0
    mu: float = 0.0
    server_learning_rate: float = 1.0


OF_RECORDS: dict[str, tuple[Settings, ...]] = {
    "centralized": (Settings(0.1), Settings(0.3)),
    "fed_avg": (Settings(0.3, momentum=0.9), Settings(0.1, 3, momentum=0.9)),
    "fed_prox": (Settings(0.1, 3, momentum=0.9, mu=0.1),),
    "fed_adam": (Settings(0.1, server_learning_rate=0.03),),
    "supervised": (Settings(0.3, momentum=0.9),),
}
GRIDS: dict[str, dict[str, tuple[Settings, ...]]] = {
    "imdb": {
        "centralized": (Settings(0.1), Settings(0.3)),
        "fed_avg": (Settings(1.0), Settings(0.3, 3), Settings(1.0, 3)),
        "fed_prox": (Settings(0.3, 3, mu=0.1),),
        "fed_adam": (Settings(0.3, server_learning_rate=0.01),),
        "supervised": (Settings(1.0),),
    },
    "mitbih": OF_RECORDS,
    "mitbih_cnn": {
        "centralized": (Settings(0.03), Settings(0.1)),
        "fed_avg": (Settings(0.3), Settings(1.0)),
        "fed_prox": (Settings(0.3, mu=0.1),),
        "fed_adam": (Settings(0.1, server_learning_rate=0.01),),
        "supervised": (Settings(0.3),),
    },
}
"""What the validation rows choose among."""


class Course(NamedTuple):
    """ROC-AUC in percent at every look."""

    rounds: list[int]
    validation: list[float]
    test: list[float]

    @property
    def best(self) -> int:
        """The look that was best on the validation rows; of equals the first."""
        return int(np.argmax(self.validation))


@cache
def clients_of(data: str, seed: int) -> Clients:
    return imdb_clients(seed) if data == "imdb" else mitbih_clients()


class Trained(NamedTuple):
    """A model and how it is trained; made once, so that all seeds share its compiled programs."""

    model: Model
    algorithm: Algorithm
    predict: Any


@cache
def trained_by(task: Task, votes: tuple[str, ...], end_model: Any, name: str, given: Settings) -> Trained:
    learn_from: Any = "labels" if name == "supervised" else "votes"
    model = weasel(task, votes=votes, end_model=end_model, learn_from=learn_from)
    said: dict[str, Any] = {"learning_rate": given.learning_rate, "local_epochs": given.local_epochs, "batch_size": 64}
    mean, momentum, server = weighted_mean(), given.momentum, given.server_learning_rate
    if name == "centralized":
        algorithm = centralized(model, momentum=momentum, **said)
    elif name == "fed_prox":
        algorithm = fed_prox(model, mean, mu=given.mu, momentum=momentum, **said)
    elif name == "fed_adam":
        algorithm = fed_opt(model, mean, optimizer="adam", server_learning_rate=server, **said)
    else:
        algorithm = fed_avg(model, mean, momentum=momentum, **said)
    return Trained(model, algorithm, jax.jit(model.predict))


def follow(clients: Clients, plan: Plan, name: str, given: Settings, seed: int) -> Course:
    """Train, and judge the end model as often as the plan says."""
    federation, course = clients.federation, Course([], [], [])
    model, algorithm, predict = trained_by(federation.task, clients.votes, plan.end_model, name, given)
    draw = random_cohort(len(federation.sites), min(plan.cohort, len(federation.sites)), seed)
    with Simulation(federation, seed=seed, largest_cohort=draw.largest) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(seed)))
        for done in range(0, plan.rounds, plan.every):
            rounds = [(number, draw.cohort(number)) for number in range(done + 1, done + plan.every + 1)]
            progress, _ = engine.train(algorithm, progress, rounds)
            params = algorithm.params(progress.server)
            course.rounds.append(done + plan.every)
            for held, found in ((clients.validation, course.validation), (clients.test, course.test)):
                found.append(auc(held, np.asarray(predict(params, held.x))[:, 1]))
    return course


@cache
def course_of(data: str, name: str, given: Settings, seed: int) -> tuple[Course, float]:
    """With the CPU seconds it took, compilation included where it is the first of its kind."""
    plan = IN_ONE_PLACE.get(data, PLANS[data]) if name == "centralized" else PLANS[data]
    started = time.process_time()
    course = follow(clients_of(data, seed), plan, name, given, seed)
    return course, round(time.process_time() - started, 1)


def auc(rows: Rows, scores: Any) -> float:
    return round(100 * float(roc_auc_score(rows.y, scores)), 2)


def majority(clients: Clients) -> float:
    """ROC-AUC of how many more rules vote for the second class than for the first."""
    signs = np.array([1 if one == clients.federation.task.classes[1] else -1 for one in clients.votes])
    return auc(clients.test, (clients.test.x[:, : len(signs)] > 0) @ signs)


@cache
def choice_of(data: str, name: str) -> Settings:
    """The settings that are best on the validation rows with seed 0."""

    def validated(given: Settings) -> float:
        course, taken = course_of(data, name, given, 0)
        said = {"validation": course.validation[course.best], "round": course.rounds[course.best]}
        tell({"part": "choice", "data": data, "method": name, **given._asdict(), **said, "cpu_seconds": taken})
        return course.validation[course.best]

    return max(GRIDS[data][name], key=validated)


def measure(runs: Sequence[tuple[str, int, str]]) -> None:
    for data, seed, name in runs:
        words = {"part": "federated", "data": data, "seed": seed}
        if name == METHODS[0]:
            tell({**words, "method": "majority", "test": majority(clients_of(data, seed))})
        course, taken = course_of(data, name, choice_of(data, name), seed)
        test, at = course.test[course.best], course.rounds[course.best]
        tell({**words, "method": name, "test": test, "round": at, "last": course.test[-1], "cpu_seconds": taken})


def tell(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def chosen(said: Sequence[str], *words: Sequence[Any]) -> list[Any]:
    """Of all combinations those that have every word said."""
    return [one for one in product(*words) if all(word in map(str, one) for word in said)]


if __name__ == "__main__":
    for part in sys.argv[1:] or DATA:
        measure(chosen(part.split(":"), DATA, SEEDS, METHODS))
