"""The client half of the Flower peer, in a module of its own so that Flower's worker processes can import it.

What does not change from round to round (rows, network) is made once in each worker and kept.
"""
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from benchmarks.peers.torch_parts import loss_of, network, tensors
from benchmarks.peers.workload import CASES, clients_of

client_app = ClientApp()


@cache
def all_rows(case: str, data: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return tensors(CASES[case], clients_of(case, Path(data)))


@cache
def resident(case: str) -> nn.Module:
    # One worker a core, so one thread a worker.
    torch.set_num_threads(1)
    return network(CASES[case])


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One pass over the client's shuffled rows."""
    config = message.content["config"]
    case = replace(CASES[config["case"]], batch_size=config["batch-size"])
    x, y = all_rows(case.name, config["data"])[context.node_config["partition-id"]]
    model, measure = resident(case.name), loss_of(case)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=case.learning_rate)
    order = torch.randperm(len(y))
    for batch_x, batch_y in zip(x[order].split(case.batch_size), y[order].split(case.batch_size), strict=True):
        optimizer.zero_grad()
        measure(model(batch_x), batch_y).backward()
        optimizer.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(content=RecordDict(content), reply_to=message)
