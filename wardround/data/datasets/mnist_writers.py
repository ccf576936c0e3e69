"""Handwritten digits, each writer a client: a real federation of 539 people whose hands differ.

MNIST (LeCun et al. 1998) with the writers of QMNIST (Yadav and Bottou, "Cold Case: The Lost MNIST Digits", NeurIPS
2019). Needs the folder mnist_with_writers; 47 MB in memory as bytes. The rows of each of the 539 writers of the
training part are split at random into 80 % to train, 10 % to validate, 10 % to test (rounded; training gets the rest).
With `holdout` "writers" the 297 writers of the official test part come after them as sites that have test rows only.
"""

from typing import Any, Literal

import numpy as np

from wardround.core.contracts import Task
from wardround.core.federation import Federation
from wardround.data.folder import data_file

Numbers = np.ndarray[Any, Any]


def mnist_writers(*, holdout: Literal["rows", "writers"] = "rows", seed: int = 0) -> Federation:
    """Handwritten digits with each of 539 writers as a client (holdout "writers": 297 new writers to test on)."""
    with np.load(data_file("mnist_with_writers", "mnist_writers.npz")) as file:
        x, y, writer = file["x_train"], file["y_train"], file["writer_train"]
        rng = np.random.default_rng(seed)
        order = np.lexsort((rng.random(len(writer)), writer))
        names, sizes = np.unique(writer, return_counts=True)
        tenth = np.round(sizes * 0.1).astype(np.int64)
        counts = np.stack([sizes - 2 * tenth, tenth, tenth], axis=1)
        x, y = x[order], y[order]
        if holdout == "writers":
            order = np.argsort(file["writer_test"], kind="stable")
            new_names, new_sizes = np.unique(file["writer_test"], return_counts=True)
            x = np.concatenate([x, file["x_test"][order]])
            y = np.concatenate([y, file["y_test"][order]])
            names = np.concatenate([names, new_names])
            none = np.zeros_like(new_sizes)
            counts = np.concatenate([counts, np.stack([none, none, new_sizes], axis=1)])
    totals = counts.sum(axis=1)
    return Federation(
        sites=tuple(f"writer-{name}" for name in names),
        x=x[..., None],
        y=y.astype(np.int32),
        first=np.cumsum(totals) - totals,
        counts=counts.astype(np.int64),
        task=Task((28, 28, 1), tuple(str(digit) for digit in range(10)), "digit"),
    )
