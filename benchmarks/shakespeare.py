"""The next character by LEAF's two-layer LSTM: a round of FedAvg here and in PyTorch, in turns in one process.

`python -m benchmarks.shakespeare --rounds 5`: clients with rows of 80 characters drawn at random (how long a step takes
does not depend on them), batches of 10, one pass. PyTorch trains one client after the other with `torch.nn.LSTM`, which
is the fastest way it has; it is timed with one thread and with one a core, and the better of the two counts. On a busy
machine its threads wait for each other by spinning, so `--threads 1` leaves the second way out there. Both sides
shuffle, train, and average by rows. Times of the processor stand beside those of the clock, since a busy machine spoils
only the latter.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import numpy as np

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Task
from wardround.core.federation import assemble
from wardround.engine.simulate import Simulation
from wardround.models.lstm import lstm

LENGTH, VOCABULARY, BATCH, RATE = 80, 80, 10, 0.8
PARAMETERS = 817_872
"""As LEAF's network has (tests/models/test_lstm.py adds them up)."""
Rows = list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]


def clients_with(clients: int, rows: int) -> Rows:
    random = np.random.default_rng(278)
    return [
        (random.integers(0, VOCABULARY, (rows, LENGTH)).astype(np.float32), random.integers(0, VOCABULARY, rows))
        for _ in range(clients)
    ]


def our_round(clients: Rows) -> Callable[[], None]:
    """A function that does one round more."""
    task = Task((LENGTH,), tuple(map(str, range(VOCABULARY))))
    rows = [(x, y.astype(np.int32)) for x, y in clients]
    sites = [(f"client-{i}", (own, (own[0][:0], own[1][:0]), (own[0][:0], own[1][:0]))) for i, own in enumerate(rows)]
    model = lstm(task)
    algorithm = fed_avg(model, weighted_mean(), learning_rate=RATE, batch_size=BATCH)
    engine = Simulation(assemble(sites, task), seed=1)
    progress, done, everyone = engine.begin(algorithm, model.init(jax.random.key(0))), 0, np.arange(len(clients))

    def one() -> None:
        nonlocal progress, done
        done += 1
        progress, _ = engine.train(algorithm, progress, [(done, everyone)])

    return one


def pytorch_round(clients: Rows, threads: int) -> Callable[[], None]:
    import torch

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(VOCABULARY, 8)
            self.lstm = torch.nn.LSTM(8, 256, num_layers=2, batch_first=True)
            self.dense = torch.nn.Linear(256, VOCABULARY)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.dense(self.lstm(self.embed(x))[0][:, -1])
            return scores

    torch.manual_seed(0)
    common = Network()
    # PyTorch keeps two biases a layer where one would do.
    assert sum(p.numel() for p in common.parameters()) == PARAMETERS + 2 * 4 * 256
    data = [(torch.tensor(x, dtype=torch.long), torch.tensor(y)) for x, y in clients]

    def one() -> None:
        torch.set_num_threads(threads)
        before = common.state_dict()
        total = {name: torch.zeros_like(value) for name, value in before.items()}
        rows = sum(len(y) for _, y in data)
        for x, y in data:
            own = copy.deepcopy(common)
            optimizer = torch.optim.SGD(own.parameters(), lr=RATE)
            for batch in torch.randperm(len(y)).split(BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(own(x[batch]), y[batch]).backward()
                optimizer.step()
            for name, value in own.state_dict().items():
                total[name] += value * (len(y) / rows)
        common.load_state_dict(total)

    return one


def timed(one: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the clock, and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    one()
    return time.perf_counter() - clock, time.process_time() - processor


def measure(rounds: int, clients: int, rows: int, threads: set[int] | None = None) -> dict[str, Any]:
    data = clients_with(clients, rows)
    cores = len(jax.devices())
    sides = {"wardround": our_round(data)}
    sides |= {f"torch, threads {n}": pytorch_round(data, n) for n in sorted(threads or {1, cores})}
    for one in sides.values():
        one()  # compiles, or warms up
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, one in sides.items():
            taken[name].append(timed(one))
    seconds = {name: median(clock for clock, _ in own) for name, own in taken.items()}
    processor = {name: median(own for _, own in both) for name, both in taken.items()}
    peers = [name for name in sides if name != "wardround"]
    return {
        "case": "shakespeare",
        "clients": clients,
        "rows": rows,
        "seconds_a_round": {name: round(value, 4) for name, value in seconds.items()},
        "processor_seconds_a_round": {name: round(value, 4) for name, value in processor.items()},
        "fastest_seconds": {name: round(min(clock for clock, _ in own), 4) for name, own in taken.items()},
        "times_pytorch": round(seconds["wardround"] / min(seconds[name] for name in peers), 3),
        "times_pytorch_processor": round(processor["wardround"] / min(processor[name] for name in peers), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a round of LEAF's LSTM beside PyTorch's.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--threads", type=int, nargs="*", help="of PyTorch; by default one, and one a core")
    options = parser.parse_args()
    print(json.dumps(measure(options.rounds, options.clients, options.rows, set(options.threads or ()))))


if __name__ == "__main__":
    main()
