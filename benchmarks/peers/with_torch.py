"""FedAvg as a plain PyTorch loop, as one would write it by hand, with nothing in it that the method does not need.

One resident model takes the common parameters, trains, and adds its weighted parameters to a running sum.
"""

import time

import torch

from benchmarks.peers import STARTED
from benchmarks.peers.torch_parts import best_of_threads, loss_of, network, tensors, total_loss
from benchmarks.peers.workload import CASES, answer, clients_of, read_task


def main() -> None:
    task = read_task(tuple(CASES))
    case = task.case
    rows = tensors(case, clients_of(case.name, task.data))
    all_rows = sum(len(y) for _, y in rows)
    model, measure = network(case), loss_of(case)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=case.learning_rate)
    common = [parameter.detach().clone() for parameter in parameters]

    def receive() -> None:
        with torch.no_grad():
            for parameter, value in zip(parameters, common, strict=True):
                parameter.copy_(value)

    def one_round() -> None:
        total = [torch.zeros_like(value) for value in common]
        for x, y in rows:
            receive()
            order = torch.randperm(len(y))
            shuffled_x, shuffled_y = x[order], y[order]
            for batch_x, batch_y in zip(
                shuffled_x.split(case.batch_size), shuffled_y.split(case.batch_size), strict=True
            ):
                optimizer.zero_grad()
                measure(model(batch_x), batch_y).backward()
                optimizer.step()
            with torch.no_grad():
                for place, parameter in zip(total, parameters, strict=True):
                    place.add_(parameter, alpha=len(y) / all_rows)
        common[:] = total

    def timed() -> list[float]:
        one_round()  # the first round with another number of threads starts them
        seconds = []
        for _ in range(task.rounds):
            begun = time.perf_counter()
            one_round()
            seconds.append(time.perf_counter() - begun)
        return seconds

    before = total_loss(case, model, rows)
    one_round()
    startup = time.perf_counter() - STARTED
    threads, seconds = best_of_threads(timed)
    receive()
    loss = (before, total_loss(case, model, rows))
    answer("torch", torch.__version__, task, startup=startup, seconds=seconds, loss=loss, threads=threads)


if __name__ == "__main__":
    main()
