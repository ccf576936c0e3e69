"""What every site's patients say about one and the same model: which way they would change it, and how surely.

For small changes of the model these two, the score and the Fisher information, are all that a site's likelihood has to
say (they are sufficient), so that sites can be compared, and their common models foretold, without any being trained.
How they are found, and their units, is told in `core.solvers.fisher`; a penalty of the model (l2) is
left out. Sends the model down and up to 256 numbers and their products in pairs up, once for every model that is asked
about; a larger model's gradient is told as random signed sums. Needs the answers one by one, so no secure sum.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.answers import answer, side_by_side
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Algorithm, Array, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK
from wardround.core.solvers.fisher import flat, like, mean_information

WIDEST = 256
"""Numbers of a gradient that are told; of a larger model, random signed sums of its weights' gradients."""

TERMS = Terms(
    "which way its patients would change a model, and how surely: the mean gradient of their loss and its information",
    lambda of: min(WIDEST, of.parameters) * (1 + min(WIDEST, of.parameters)) + 2,
)


@recorded("probe", TERMS)
def information(model: Model, *, smallest_cell: Count = 1) -> Algorithm:
    """A probe of one round: each site's mean score at the model sent, and the mean information of a patient.

    smallest_cell: patients that must be behind either, so that no model singles out one; else it is told as 0.
    """
    aggregator = side_by_side()

    def init(params: Params, sites: int) -> Tree:
        told = min(WIDEST, parameter_count(params))
        return {
            "params": params,
            "slope": jnp.zeros((sites, told)),
            "bend": jnp.zeros((sites, told, told)),
            "spread": jnp.zeros(sites),
            "rows": jnp.zeros(sites),
        }

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        params: Params = message.arrays["params"]
        told = min(WIDEST, parameter_count(params))
        # A gradient a patient and outcome: of a large model only a few fit into memory at a time.
        size = max(1, min(CHUNK, 2**18 // parameter_count(params)))

        found = mean_information(model, params, shard, key, lambda gradient: sketch(gradient, told), size=size)
        arrays = {"slope": found.slope, "bend": found.bend, "spread": found.spread}
        if smallest_cell > 1:
            told_slope, told_bend = found.behind >= smallest_cell
            arrays |= {
                "slope": jnp.where(told_slope, found.slope, 0.0),
                "bend": jnp.where(told_bend, found.bend, 0.0),
            }
        return answer(model, aggregator, params, shard, "samples", arrays), kept

    def server(state: Tree, stack: Message) -> Tree:
        rows, site = stack.arrays["weight"], stack.arrays["site"]
        sums = {name: stack.arrays[name] for name in ("slope", "bend", "spread")}
        found = {**jax.vmap(trees.divide_or_zero)(sums, rows), "rows": rows}
        return {
            "params": state["params"],
            **{name: state[name].at[site].set(value, mode="drop") for name, value in found.items()},
        }

    return Algorithm(
        init=init,
        init_client=lambda params: (),
        broadcast=lambda state: Message({"params": state["params"]}),
        client=client,
        aggregator=aggregator,
        server=server,
        params=lambda state: state["params"],
        predict=model.predict,
    )


def parameter_count(params: Params) -> int:
    return sum(int(np.prod(jnp.shape(leaf))) for leaf in jax.tree.leaves(params))


def sketch(gradient: Params, told: int) -> Array:
    """All numbers of a gradient, or their signed sums in `told` random bins (a count sketch, true to lengths)."""
    whole = flat(gradient)
    if whole.size <= told:
        return whole
    bins, signs = jax.random.split(jax.random.key(0))
    where = jax.random.randint(bins, whole.shape, 0, told)
    return jax.ops.segment_sum(whole * jax.random.rademacher(signs, whole.shape, whole.dtype), where, told)


def moved(params: Params, change: np.ndarray[Any, Any]) -> Params | None:
    """The model changed by so much along what `sketch` tells of it; none where that is not one number a weight."""
    if parameter_count(params) != len(change):
        return None
    found: Params = trees.add(params, like(params, jnp.asarray(change, jnp.float32)))
    return found
