"""The networks, the loss and the choice of threads that the three peers on PyTorch have in common."""

from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import nn

from benchmarks.peers.workload import Case, Client


def network(case: Case) -> nn.Module:
    """The case's network, with PyTorch's own initial values from a fixed seed."""
    torch.manual_seed(278)
    if case.name == "tabular":
        layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    elif case.name == "images":
        layers = nn.Sequential(
            nn.Unflatten(1, (1, 28)),
            nn.Conv2d(1, 32, 5, padding="same"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding="same"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(7 * 7 * 64, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        )
    else:
        layers = nn.Sequential(nn.Linear(13, 1), nn.Flatten(0))
    assert sum(parameter.numel() for parameter in layers.parameters()) == case.parameters
    return layers


def loss_of(case: Case) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Cross-entropy: of two classes by one output for the hospitals, of an output a class elsewhere."""
    if case.name == "hospitals":
        return nn.functional.binary_cross_entropy_with_logits
    return nn.functional.cross_entropy


def tensors(case: Case, clients: Sequence[Client]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The clients' rows as tensors, converted once."""
    kind = torch.float32 if case.name == "hospitals" else torch.int64
    return [(torch.from_numpy(client.x), torch.from_numpy(client.y).to(kind)) for client in clients]


def total_loss(case: Case, model: nn.Module, rows: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """The mean loss over all rows of all clients."""
    measure = loss_of(case)
    with torch.no_grad():
        total = sum(float(measure(model(x), y)) * len(y) for x, y in rows)
    return total / sum(len(y) for _, y in rows)


def best_of_threads(timed: Callable[[], list[float]], candidates: Sequence[int] = (1, 2)) -> tuple[int, list[float]]:
    """Time the rounds with each number of threads, and return the better number with its seconds.

    Small networks lose by a second thread and large ones gain, so a fixed number would wrong the peer somewhere.
    """
    seconds = {}
    for threads in candidates:
        torch.set_num_threads(threads)
        seconds[threads] = timed()
    best = min(seconds, key=lambda threads: median(seconds[threads]))
    return best, seconds[best]
