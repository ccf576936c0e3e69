"""FedAvg in fedjax, with its own compiled step for each client and its own shuffling.

fedjax fills a client's last batch up with rows drawn again, so with ragged clients (images) it computes a little
more than the others do.
"""
# mypy: disable-error-code="import-not-found"

import time
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import fedjax
import haiku
import jax
import numpy as np
from fedjax.algorithms import fed_avg

from benchmarks.peers import STARTED
from benchmarks.peers.workload import Case, Client, answer, clients_of, read_task

SHAPES = {"tabular": (64,), "images": (28, 28, 1)}


def forward(case: Case, batch: Any) -> Any:
    """The case's network."""
    if case.name == "tabular":
        return haiku.nets.MLP([64, 2])(batch["x"])
    layers = haiku.Sequential(
        [
            haiku.Conv2D(32, 5, padding="SAME"),
            jax.nn.relu,
            haiku.MaxPool(2, 2, "VALID", channel_axis=-1),
            haiku.Conv2D(64, 5, padding="SAME"),
            jax.nn.relu,
            haiku.MaxPool(2, 2, "VALID", channel_axis=-1),
            haiku.Flatten(),
            haiku.Linear(512),
            jax.nn.relu,
            haiku.Linear(10),
        ]
    )
    return layers(batch["x"])


def model_of(case: Case) -> fedjax.Model:
    sample = {"x": np.zeros((1, *SHAPES[case.name]), np.float32), "y": np.zeros(1, np.int32)}
    return fedjax.create_model_from_haiku(
        transformed_forward_pass=haiku.transform(lambda batch: forward(case, batch)),
        sample_batch=sample,
        train_loss=lambda batch, scores: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], scores),
    )


def federated(case: Case, clients: list[Client]) -> fedjax.FederatedData:
    shape = SHAPES[case.name]
    return fedjax.InMemoryFederatedData(
        {number: {"x": x.reshape(-1, *shape), "y": y.astype(np.int32)} for number, (x, y) in enumerate(clients)}
    )


def total_loss(model: fedjax.Model, params: Any, data: fedjax.FederatedData) -> float:
    """The mean loss over all rows of all clients."""
    batches = fedjax.padded_batch_federated_data(data, batch_size=100)
    measure = fedjax.model_per_example_loss(model)
    return float(fedjax.evaluate_average_loss(params, batches, jax.random.PRNGKey(0), measure))


def main() -> None:
    task = read_task(tuple(SHAPES))
    case = task.case
    data = federated(case, clients_of(case.name, task.data))
    model = model_of(case)
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(case.learning_rate),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=case.batch_size, num_epochs=1),
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(278)))
    assert sum(leaf.size for leaf in jax.tree_util.tree_leaves(state.params)) == case.parameters
    keys = jax.random.split(jax.random.PRNGKey(1), data.num_clients())
    cohort = [(number, dataset, key) for (number, dataset), key in zip(data.clients(), keys, strict=True)]

    before = total_loss(model, state.params, data)
    ends = []
    for _ in range(task.rounds + 1):
        state, _ = algorithm.apply(state, cohort)
        jax.block_until_ready(state.params)
        ends.append(time.perf_counter())
    seconds = [end - begin for begin, end in pairwise(ends)]
    loss = (before, total_loss(model, state.params, data))
    answer("fedjax", version("fedjax"), task, startup=ends[0] - STARTED, seconds=seconds, loss=loss)


if __name__ == "__main__":
    main()
