"""How `asyn_dgan` learns what masks look like at each site: numbers of ellipses, fitted to means of statistics."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from wardround.algorithms.images.style_statistics import fitted_rows, heard_statistics, told_statistics
from wardround.core.components.generation import Generation
from wardround.core.contracts import Aggregator, Array, Message, Params, Shard, Tree
from wardround.core.errors import Refusal

TOLD = "mask_statistics"


class MaskSearch(NamedTuple):
    """`begin` the server's memory, what a site may `tell`, and the numbers with the memory after a `step`."""

    begin: Callable[[Params], Tree]
    tell: Callable[[Shard], dict[str, Array]]
    step: Callable[[Tree, Array, Message], tuple[Array, Tree]]


def begin_search(
    made: Generation, aggregator: Aggregator, *, rounds: int, simulated: int, cell: int, each: int
) -> MaskSearch:
    """A step of the search in each of the first rounds; refused where answers are not just added up."""
    describe, draw, table = made.describe_masks, made.simulate_masks, made.shape_table
    if describe is None or draw is None or not aggregator.is_plain_sum or aggregator.needs:
        raise Refusal(
            "statistics of each style's masks lie in a place of their own, so they can only be added up",
            where="[algorithm] mask_statistics",
            remedy="choose the aggregator weighted_mean, or leave mask_statistics out",
        )

    def describe_drawn(row: Array) -> Array:
        """The same random numbers for every row, step, round and style."""
        return describe(draw(jnp.broadcast_to(row, (simulated, *row.shape)), jax.random.key(1)))

    def begin(params: Params) -> Tree:
        row = jax.ShapeDtypeStruct(params[table].shape[1:], jnp.float32)
        count = jax.eval_shape(describe_drawn, row).shape[1]
        nothing = jnp.zeros(made.styles)
        return {"bank": jnp.zeros((made.styles, count)), "known": nothing, "distance": nothing, "round": jnp.int32(0)}

    def tell(shard: Shard) -> dict[str, Array]:
        return told_statistics(TOLD, shard, lambda x, y: describe(y), made.styles, cell, each)

    def step(memory: Tree, rows: Array, combined: Message) -> tuple[Array, Tree]:
        bank, known = heard_statistics(TOLD, memory["bank"], memory["known"], combined)
        steps = jnp.where(memory["round"] < rounds, 1, 0)
        rows, distance = fitted_rows(known, bank, (rows, memory["distance"]), describe_drawn, steps)
        return rows, {"bank": bank, "known": known, "distance": distance, "round": memory["round"] + 1}

    return MaskSearch(begin, tell, step)
