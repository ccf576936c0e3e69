"""FedAvg in pfl-research, simulated in one process.

The data sets are made once and handed out again, so that pfl keeps their batches: it does not shuffle unless told
to. Nothing is evaluated in the timed rounds.
"""
# mypy: disable-error-code="import-not-found,misc"

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.version import __version__ as pfl_version
from torch import nn

from benchmarks.peers import STARTED
from benchmarks.peers.torch_parts import best_of_threads, loss_of, network, tensors, total_loss
from benchmarks.peers.workload import Case, answer, clients_of, read_task


class WithLoss(nn.Module):
    """The network with the two methods that pfl asks of a module."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.layers = network(case)
        self.measure = loss_of(case)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.measure(self.layers(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        with torch.no_grad():
            return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class RoundEnds(TrainingProcessCallback):
    """The moment at which each round ended."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        self.moments.append(time.perf_counter())
        return False, Metrics()


def runner(case: Case, model: PyTorchModel, backend: SimulatedBackend, cohort: int) -> Callable[[int], list[float]]:
    """A function that trains on for some rounds, and returns the moments at which they ended."""
    train = NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=case.learning_rate, local_batch_size=case.batch_size
    )

    def run(rounds: int) -> list[float]:
        ends = RoundEnds()
        FederatedAveraging().run(
            # pfl evaluates in the first round of a run, and then not again before `evaluation_frequency` rounds.
            algorithm_params=NNAlgorithmParams(
                central_num_iterations=rounds,
                evaluation_frequency=rounds + 1,
                train_cohort_size=cohort,
                val_cohort_size=0,
            ),
            backend=backend,
            model=model,
            model_train_params=train,
            model_eval_params=NNEvalHyperParams(local_batch_size=1_000),
            callbacks=[ends],
            send_metrics_to_platform=False,
        )
        return ends.moments

    return run


def main() -> None:
    task = read_task(("tabular", "images"))
    case = task.case
    set_framework_module(pytorch_ops)
    rows = tensors(case, clients_of(case.name, task.data))
    datasets = [Dataset([x, y], user_id=str(user)) for user, (x, y) in enumerate(rows)]
    users = FederatedDataset(datasets.__getitem__, get_user_sampler("minimize_reuse", list(range(len(rows)))))
    module = WithLoss(case)
    model = PyTorchModel(
        module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    backend = SimulatedBackend(training_data=users, val_data=None, postprocessors=[WeightByDatapoints()])
    run = runner(case, model, backend, cohort=len(rows))

    def timed() -> list[float]:
        moments = run(task.rounds + 1)
        return [end - begin for begin, end in pairwise(moments)]

    before = total_loss(case, module.layers, rows)
    run(1)
    startup = time.perf_counter() - STARTED
    threads, seconds = best_of_threads(timed)
    loss = (before, total_loss(case, module.layers, rows))
    answer("pfl", pfl_version, task, startup=startup, seconds=seconds, loss=loss, threads=threads)


if __name__ == "__main__":
    main()
