"""LEAF's synthetic set: every device its own linear truth, around one or more centres.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018, appendix. With d features and clusters of the
probabilities p: cluster means mu_j ~ N(B_j, I), B_j ~ N(0, I), of s numbers; for each class Q ~ N(0, I) of (d + 1) x s.
Device t draws its cluster, u_t ~ N(mu, I) and w_t = Q u_t; m_t log-normal(3, 2) (of the logarithm) and n_t =
min(m_t + 5, 1000) rows; v_t ~ N(C_t, I), C_t ~ N(0, I); x ~ N(v_t, diag(i^-1.2)); y = the class with the largest
w_t (x, 1) + N(0, 0.1 I). The sigmoid of the printed rule changes no argmax and is left out. The rows of each device are
split 60 / 20 / 20 at random.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np

from wardround.core.bounds import Bound, Count
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.data.datasets.leaf.clients import ClientRows, federation_of
from wardround.data.datasets.leaf.leaf_files import SHARES

Numbers = np.ndarray[Any, Any]


def leaf_synthetic(
    *,
    devices: Count = 1_000,
    features: Count = 60,
    classes: Annotated[int, Bound(low=2)] = 5,
    clusters: tuple[float, ...] = (1.0,),
    dimensions: Count = 10,
    seed: int = 0,
) -> Federation:
    """LEAF's synthetic set of devices with linear truths of their own (clusters: their probabilities)."""
    if not clusters or any(not 0 < share <= 1 for share in clusters) or abs(sum(clusters) - 1) > 1e-9:
        raise Refusal(
            f"{list(clusters)} are no probabilities of clusters",
            where="data set leaf_synthetic, clusters",
            remedy="give numbers above 0 that add up to 1, such as [0.5, 0.5]",
        )
    rng = np.random.default_rng([seed, 0x1EAF])
    centres = rng.normal(rng.normal(size=(len(clusters), dimensions)), 1)
    mix = rng.normal(size=(classes, features + 1, dimensions))
    spread = np.arange(1, features + 1) ** -0.6  # the square root of i^-1.2

    def made() -> Iterator[ClientRows]:
        for device in range(devices):
            own = np.random.default_rng([seed, 0x1EAF, device])
            truth = mix @ own.normal(centres[own.choice(len(clusters), p=clusters)], 1)
            rows = int(min(own.lognormal(3, 2) + 5, 1000))
            middle = own.normal(own.normal(size=features), 1)
            x = middle + spread * own.normal(size=(rows, features))
            logits = np.c_[x, np.ones(rows)] @ truth.T + own.normal(0, np.sqrt(0.1), (rows, classes))
            yield ClientRows(f"device-{device}", x.astype(np.float32), logits.argmax(axis=1).astype(np.int32))

    names = tuple(str(label) for label in range(classes))
    return federation_of(made(), Task((features,), names, "label"), shares=SHARES, fewest=1, seed=seed)
