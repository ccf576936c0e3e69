"""Whether a study fits into memory, estimated before it starts."""

import psutil

from wardround.core import trees
from wardround.core.contracts import Algorithm, Params, Tree
from wardround.core.errors import Refusal
from wardround.core.federation import Federation, is_in_memory
from wardround.engine.layout import PIECE_BYTES, Shape


def estimate(algorithm: Algorithm, params: Params, kept: Tree, federation: Federation, shape: Shape) -> dict[str, int]:
    """Bytes by purpose. Copies that exist for a moment count too."""
    model = trees.nbytes(params)
    rows = int(federation.x[:1].nbytes) * len(federation.x) if len(federation.x) else 0
    return {
        "rows of all sites": 2 * rows,
        "rows of the pieces under way": min(4 * PIECE_BYTES, 2 * rows * algorithm.passes),
        "what sites keep between rounds": 2 * trees.nbytes(kept) * len(federation.sites),
        "models in training": 6 * model * shape.devices * shape.lanes,
        "answers held side by side": 0 if algorithm.aggregator.linear else 3 * model * shape.slots,
    }


def refuse_if_too_large(algorithm: Algorithm, params: Params, kept: Tree, federation: Federation, shape: Shape) -> None:
    parts = estimate(algorithm, params, kept, federation, shape)
    if not is_in_memory(federation.x):  # only a cohort's rows are
        parts["rows of all sites"] = 0
    free = psutil.virtual_memory().available
    if sum(parts.values()) <= free:
        return
    largest = max(parts, key=lambda name: parts[name])
    raise Refusal(
        f"the study needs about {sum(parts.values()) / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free; "
        f"most of it, {parts[largest] / 1e9:.1f} GB, for {largest}",
        remedy="take fewer sites into a round, choose a smaller model, or an aggregator that streams (weighted_mean)",
    )
