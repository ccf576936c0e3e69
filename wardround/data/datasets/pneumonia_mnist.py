"""Chest X-rays of children, pneumonia or normal, 28 x 28: a small medical image task.

Yang et al., "MedMNIST v2", Scientific Data 2023; Kermany et al., Cell 2018 (CC BY 4.0). 4,708 images to train, 524 to
validate, 624 to test, as officially split. Needs the folder pneumoniamnist. All are of one hospital, so they are shared
out to `sites`: at random in equal proportions, or with label skew in Dirichlet(alpha) proportions. A site's validation
and test images are shared out in the same proportions as its training images. Every site gets at least one training
image: a draw is repeated until so, and otherwise refused; a small site may lack validation or test images.
"""

from typing import Any

import numpy as np

from wardround.core.bounds import Count, NotNegative
from wardround.core.contracts import Task
from wardround.core.federation import Federation, assemble
from wardround.data.folder import data_file
from wardround.data.partitions.by_label_dirichlet import draw_shares, share_out
from wardround.data.partitions.iid import refuse_empty

CLASSES = ("normal", "pneumonia")


def pneumonia_mnist(*, sites: Count = 4, alpha: NotNegative = 0.0, seed: int = 0) -> Federation:
    """Pneumonia on children's chest X-rays, shared out to sites (alpha 0: at random; else Dirichlet label skew)."""
    rng = np.random.default_rng(seed)
    with np.load(data_file("pneumoniamnist", "pneumoniamnist_full.npz")) as file:
        parts = [
            (file[f"{part}_images"][..., None], file[f"{part}_labels"].reshape(-1).astype(np.int32))
            for part in ("train", "val", "test")
        ]
    train_sizes = np.bincount(parts[0][1])
    shares: np.ndarray[Any, Any] = np.full((len(CLASSES), sites), 1.0 / sites)
    if alpha:
        shares = draw_shares(train_sizes, sites, alpha, 1, rng, where="data set pneumonia_mnist")
    dealt = [share_out(y, shares, rng) for _, y in parts]
    refuse_empty(dealt[0], where="data set pneumonia_mnist", remedy="ask for fewer sites")
    return assemble(
        [
            (f"site-{i}", [(x[rows[i]], y[rows[i]]) for (x, y), rows in zip(parts, dealt, strict=True)])
            for i in range(sites)
        ],
        Task((28, 28, 1), CLASSES, "diagnosis"),
    )
