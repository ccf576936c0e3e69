"""FedAvg in Flower's simulation: its own strategy, and Ray with one worker process a core.

Flower's and Ray's reports to their makers are switched off (in `run_peer`, and here for a start by hand). Nothing is
evaluated in the timed rounds.
"""
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

import os
import time
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from benchmarks.peers import ROOT, STARTED

# Before the imports of Flower and Ray, which read them. Ray's workers need to find this package.
os.environ.update(
    FLWR_TELEMETRY_ENABLED="0",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_DISABLE_METRICS_COLLECTION="1",
    PYTHONPATH=str(ROOT),
)

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.flower_client import client_app
from benchmarks.peers.torch_parts import network, tensors, total_loss
from benchmarks.peers.workload import answer, clients_of, read_task


class TimedFedAvg(FedAvg):
    """Flower's FedAvg, which notes the moment at which each round's average was done."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.moments: list[float] = []

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        combined = super().aggregate_train(server_round, replies)
        self.moments.append(time.perf_counter())
        return combined


def main() -> None:
    task = read_task(("tabular", "images"))
    case = task.case
    rows = tensors(case, clients_of(case.name, task.data))
    model = network(case)
    before = total_loss(case, model, rows)
    strategy = TimedFedAvg(
        fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=len(rows), min_available_nodes=len(rows)
    )
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        result = strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(model.state_dict()),
            num_rounds=task.rounds + 1,
            train_config=ConfigRecord(
                {
                    "case": case.name,
                    "batch-size": case.batch_size,
                    "data": str(task.data.resolve() if task.data else ""),
                }
            ),
        )
        model.load_state_dict(result.arrays.to_torch_state_dict())

    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=len(rows),
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": os.cpu_count() or 1, "include_dashboard": False},
        },
    )
    moments = strategy.moments
    seconds = [end - begin for begin, end in pairwise(moments)]
    loss = (before, total_loss(case, model, rows))
    answer("flower", version("flwr"), task, startup=moments[0] - STARTED, seconds=seconds, loss=loss, threads=1)


if __name__ == "__main__":
    main()
