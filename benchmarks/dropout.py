"""What a narrower round costs beside a whole one: time, bytes both ways, numbers in training.

Both are timed in turns in one process, so that they meet the same slow and quick moments of the machine; the ratio is
the median over the turns. Run `python -m benchmarks.dropout [images|tabular|wide] --turns 5`.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.ours import MODELS, PIECES, Timed, federation_of
from benchmarks.peers.workload import CASES
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.federated_dropout import federated_dropout
from wardround.engine.simulate import Simulation
from wardround.models.mlp import mlp

WIDTHS = (1.0, 0.75, 0.5, 0.25)


def measure(case: str, turns: int, data: Path | None = None) -> dict[str, Any]:
    """FedAvg and federated dropout at several widths on one workload: the tabular or image case of `make bench`, or
    the tabular one with two hidden layers of 512 units."""
    work = CASES["tabular" if case == "wide" else case]
    federation = federation_of("tabular" if case == "wide" else case, data)
    model = mlp(federation.task, hidden=(512, 512)) if case == "wide" else MODELS[case](federation.task)
    settings: dict[str, Any] = {"learning_rate": work.learning_rate, "batch_size": work.batch_size}
    piece = 1 if case == "wide" else PIECES[case]
    with Simulation(federation, seed=1) as engine:
        whole = Timed(engine, fed_avg(model, weighted_mean(), **settings), model, piece)
        narrow = {
            width: Timed(engine, federated_dropout(model, weighted_mean(), width=width, **settings), model, piece)
            for width in WIDTHS
        }
        taken: dict[float, list[float]] = {width: [] for width in WIDTHS}
        plain = []
        for _ in range(turns):
            plain.append(whole.rounds())
            for width, one in narrow.items():
                taken[width].append(one.rounds())
        down, up = engine.message_bytes(whole.algorithm, whole.progress)
        found = []
        for width, one in narrow.items():
            own_down, own_up = engine.message_bytes(one.algorithm, one.progress)
            ratio = median(a / b for a, b in zip(taken[width], plain, strict=True))
            found.append(
                {
                    "width": width,
                    "times_fed_avg": round(ratio, 3),
                    "bytes_down": round(own_down / down, 4),
                    "bytes_up": round(own_up / up, 4),
                    "loss": [round(one.before, 4), round(one.loss(), 4)],
                }
            )
        return {"case": case, "fed_avg_ms": [round(one, 2) for one in plain], "narrow": found}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time narrow rounds beside whole ones and print one line of JSON.")
    parser.add_argument("case", choices=("images", "tabular", "wide"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    print(json.dumps(measure(options.case, options.turns, options.data)))


if __name__ == "__main__":
    main()
