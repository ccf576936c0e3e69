"""The work that every peer does, so that only the peers differ: data, sizes, and the form of the answer.

Needs NumPy alone, of any version, since it runs in every peer's environment.

tabular    100 clients x 100 rows, 64 features, two classes; a network 64-64-2; batches of 10
images     handwritten digits of the first ten writers; two convolutions and two dense layers; batches of 10
hospitals  4 hospitals x 160 rows, 13 features, yes or no; logistic regression; batches of 32

Each round every client passes once over its own rows, and the server averages by rows (FedAvg).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Client(NamedTuple):
    """One client's rows."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """What is trained and how; `parameters` lets a script assert that its network is the one meant."""

    name: str
    parameters: int
    batch_size: int
    learning_rate: float


# 64*64 + 64 + 64*2 + 2;
# (5*5*1*32 + 32) + (5*5*32*64 + 64) + (7*7*64*512 + 512) + (512*10 + 10);
# 13 weights and an intercept.
CASES = {
    case.name: case
    for case in (
        Case("tabular", parameters=4_290, batch_size=10, learning_rate=0.1),
        Case("images", parameters=1_663_370, batch_size=10, learning_rate=0.05),
        Case("hospitals", parameters=14, batch_size=32, learning_rate=0.1),
    )
}


@dataclass(frozen=True)
class Task:
    """What the command line asked for."""

    case: Case
    rounds: int
    data: Path | None


@dataclass(frozen=True)
class Answer:
    """What a script prints. `startup_seconds` runs from the script's beginning to the end of its first round."""

    peer: str
    case: str
    version: str
    ms_per_round: list[float]
    startup_seconds: float
    batch_size: int
    threads: int | None
    loss: tuple[float, float]


def read_task(cases: Sequence[str]) -> Task:
    """The options every script takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=cases, required=True)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds; the first, untimed one comes on top")
    parser.add_argument("--data", type=Path, help="mnist_writers.npz, for the case images")
    parser.add_argument("--batch-size", type=int, help="another batch size than the case's own")
    options = parser.parse_args()
    if options.rounds < 1 or (options.batch_size is not None and options.batch_size < 1):
        parser.error("--rounds and --batch-size are whole numbers from 1")
    if options.case == "images" and (options.data is None or not options.data.is_file()):
        parser.error("the case images needs --data, the file mnist_writers.npz")
    case = CASES[options.case]
    return Task(replace(case, batch_size=options.batch_size or case.batch_size), options.rounds, options.data)


def clients_of(case: str, data: Path | None) -> list[Client]:
    """The clients of a case, the same for every peer."""
    if case == "images":
        assert data is not None
        return writers(data, 10)
    if case == "tabular":
        return made_clients(clients=100, rows=100, features=64)
    return made_clients(clients=4, rows=160, features=13)


def made_clients(*, clients: int, rows: int, features: int) -> list[Client]:
    """Normal features, and a label that says on which side of a hidden plane the row lies: it can be learned."""
    numbers = np.random.default_rng(278)
    plane = numbers.normal(size=features)
    x = numbers.normal(size=(clients, rows, features))
    y = (x @ plane > 0).astype(np.int64)
    return [Client(x[client].astype(np.float32), y[client]) for client in range(clients)]


def writers(path: Path, count: int) -> list[Client]:
    """All training images of the first writers by number, 28 x 28, from 0 to 1."""
    with np.load(path, allow_pickle=False) as stored:
        x, y, writer = stored["x_train"], stored["y_train"], stored["writer_train"]
    chosen = np.unique(writer)[:count]
    return [Client(x[writer == one].astype(np.float32) / 255, y[writer == one].astype(np.int64)) for one in chosen]


def answer(
    peer: str,
    version: str,
    task: Task,
    *,
    startup: float,
    seconds: Sequence[float],
    loss: tuple[float, float],
    threads: int | None = None,
) -> None:
    """Print the one line, after making sure that the peer did learn."""
    if len(seconds) != task.rounds:
        sys.exit(f"{peer} timed {len(seconds)} rounds, {task.rounds} were asked for")
    if not loss[1] < loss[0]:
        sys.exit(f"{peer} did not learn: the loss went from {loss[0]} to {loss[1]}")
    fields: dict[str, Any] = asdict(
        Answer(
            peer=peer,
            case=task.case.name,
            version=version,
            ms_per_round=[round(1e3 * second, 4) for second in seconds],
            startup_seconds=round(startup, 3),
            batch_size=task.case.batch_size,
            threads=threads,
            loss=(round(loss[0], 5), round(loss[1], 5)),
        )
    )
    print(json.dumps(fields), flush=True)
