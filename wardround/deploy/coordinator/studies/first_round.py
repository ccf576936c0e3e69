"""What is known of the first round's cost before it begins: the bytes of its arrays, and its training rows.

What stands around the arrays on the line is not counted, so a round costs somewhat more than this says.
"""

from dataclasses import replace

import jax
import numpy as np

from wardround.core.chain import tailored
from wardround.core.contracts import Algorithm, Params
from wardround.deploy.coordinator.engine import Deployment
from wardround.engine.participation import Participation
from wardround.engine.split_round import initial_progress, kind_at, row_of
from wardround.engine.traffic import bytes_by_site, round_traffic


def first_costs(
    engine: Deployment, algorithm: Algorithm, params: Params, participation: Participation
) -> tuple[int, int]:
    """Bytes both ways and training rows of the sites that are asked first."""
    cohort, row = participation.cohort(1), row_of(engine.task)
    rows = sum(engine.limits.rows.get(engine.sites[int(site)], (0, 0, 0))[0] for site in cohort)
    way, population = tailored(algorithm, engine.transform), len(engine.sites)
    begun = initial_progress(algorithm, engine.transform, params, population, row)
    kept = jax.tree.map(lambda leaf: np.zeros((1, *leaf.shape), leaf.dtype), algorithm.init_client(params))
    kinds = np.array([kind_at(way, int(site)) for site in cohort])
    given = way, engine.transform, replace(begun, clients=kept), row
    ways = {int(kind): round_traffic(*given, int(kind)) for kind in np.unique(kinds)}
    return int(bytes_by_site(ways, kinds).sum()), rows
