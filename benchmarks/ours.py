"""Our own side of a case: `python -m benchmarks.ours tabular --rounds 20` prints one line of JSON, as a peer would.

The tabular case measures the arithmetic floor between its own pieces, so that both meet the same slow and quick moments
of the machine. The images case also times centralised training on the same rows by the same library.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np

from benchmarks.floor import STRICT, USUAL, milliseconds
from benchmarks.peers.workload import CASES, clients_of
from benchmarks.run_peer import images
from wardround import __version__
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.centralized import centralized
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Algorithm, Model, Progress, Task
from wardround.core.federation import Federation, assemble
from wardround.engine.simulate import Simulation
from wardround.models.cnn import cnn
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp

MODELS: dict[str, Callable[[Task], Model]] = {
    "tabular": lambda task: mlp(task, hidden=(64,)),
    "images": cnn,
    "hospitals": logistic,
}
PIECES = {"tabular": 10, "images": 1, "hospitals": 50}
"""Rounds in one call of the engine, nothing evaluated between them; peers are timed round by round."""


def federation_of(case: str, data: Path | None) -> Federation:
    clients = clients_of(case, images(data) if case == "images" else None)
    rows: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = [(c.x, c.y) for c in clients]
    if case == "images":
        # Bytes, as the data set holds them; the engine makes numbers of a batch when it is drawn.
        rows = [(np.round(x * 255).astype(np.uint8)[..., None], y) for x, y in rows]
    task = Task(rows[0][0].shape[1:], tuple("0123456789") if case == "images" else ("no", "yes"))
    empty = (rows[0][0][:0], rows[0][1][:0])
    return assemble([(f"client-{i}", (one, empty, empty)) for i, one in enumerate(rows)], task)


class Timed:
    """An algorithm in training, timed piece by piece after a first, untimed piece that compiles."""

    def __init__(self, engine: Simulation, algorithm: Algorithm, model: Model, piece: int) -> None:
        self.engine, self.algorithm, self.piece = engine, algorithm, piece
        self.everyone = np.arange(len(engine.sites))
        self.done = 0
        begun = time.perf_counter()
        self.progress: Progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        self.before = self.loss()
        loss_seconds = time.perf_counter()
        self.rounds()
        first = time.perf_counter() - loss_seconds
        self.rounds()
        self.startup = time.perf_counter() - begun
        self.compile_seconds = first

    def rounds(self) -> float:
        """Milliseconds a round of one more piece."""
        numbers = range(self.done + 1, self.done + self.piece + 1)
        self.done += self.piece
        begun = time.perf_counter()
        self.progress, _ = self.engine.train(self.algorithm, self.progress, [(n, self.everyone) for n in numbers])
        return 1e3 * (time.perf_counter() - begun) / self.piece

    def loss(self) -> float:
        return self.engine.judge(self.algorithm, self.progress, "train").mean_loss


def measure(case: str, pieces: int, *, batch_size: int | None = None, data: Path | None = None) -> dict[str, Any]:
    """One case: milliseconds a round, piece by piece, with what it is to be compared with in the same process."""
    begun = time.perf_counter()
    work = CASES[case]
    federation = federation_of(case, data)
    model = MODELS[case](federation.task)
    settings: dict[str, Any] = {"learning_rate": work.learning_rate, "batch_size": batch_size or work.batch_size}
    algorithm = fed_avg(model, weighted_mean(), **settings)
    result: dict[str, Any] = {"peer": "wardround", "case": case, "version": __version__}
    with Simulation(federation, seed=1) as engine:
        ours = Timed(engine, algorithm, model, PIECES[case])
        result["startup_seconds"] = round(time.perf_counter() - begun, 3)
        result["compile_seconds"] = round(ours.compile_seconds, 3)
        beside = Timed(engine, centralized(model, **settings), model, 1) if case == "images" else None
        taken, floor, strict, pooled = [], [], [], []
        for _ in range(pieces):
            if case == "tabular":
                floor.append(min(milliseconds(USUAL, 10)))
                strict.append(min(milliseconds(STRICT, 10)))
            taken.append(ours.rounds())
            if beside is not None:
                pooled.append(beside.rounds())
        result["ms_per_round"] = [round(one, 4) for one in taken]
        result["loss"] = [round(ours.before, 4), round(ours.loss(), 4)]
    assert result["loss"][1] < result["loss"][0], "nothing was learned"
    if floor:
        result |= {"floor_ms": floor, "strict_floor_ms": strict}
        result["times_the_floor"] = round(median(a / b for a, b in zip(taken, floor, strict=True)), 2)
        result["times_the_strict_floor"] = round(median(a / b for a, b in zip(taken, strict, strict=True)), 2)
    if pooled:
        result["centralized_ms"] = [round(one, 2) for one in pooled]
        result["times_centralized"] = round(median(a / b for a, b in zip(taken, pooled, strict=True)), 2)
    result["batch_size"] = settings["batch_size"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Time our own rounds of one case and print one line of JSON.")
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("--rounds", type=int, default=20, help="timed pieces")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    print(json.dumps(measure(options.case, options.rounds, batch_size=options.batch_size, data=options.data)))


if __name__ == "__main__":
    main()
