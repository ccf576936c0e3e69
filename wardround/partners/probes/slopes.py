"""Every site's gradient at one and the same model, side by side: where each would pull it.

Sends the model down and a gradient of its size up, once. Needs the answers one by one, so no secure sum. `part` tells
which of their rows the sites look at.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from wardround.core import trees
from wardround.core.answers import answer, side_by_side
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Algorithm, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import full_gradient

TERMS = Terms(
    "where its patients pull the model: the mean gradient of their loss",
    lambda of: of.parameters + 1,
)


@recorded("probe", TERMS)
def slopes(model: Model, *, part: Literal["train", "validation", "test"] = "train") -> Algorithm:
    """The gradient of each site's mean loss at the model that was sent; state["slopes"] has one row a site."""
    aggregator = side_by_side()

    def init(params: Params, sites: int) -> Tree:
        rows = jax.tree.map(lambda a: jnp.zeros((sites, *jnp.shape(a))), params)
        return {"params": params, "slopes": rows, "rows": jnp.zeros(sites)}

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        params: Params = message.arrays["params"]
        slope = full_gradient(model.gradient, params, shard, key)
        return answer(model, aggregator, params, shard, "samples", {"slope": slope}), kept

    def server(state: Tree, stack: Message) -> Tree:
        rows, site = stack.arrays["weight"], stack.arrays["site"]
        found = jax.vmap(trees.divide_or_zero)(stack.arrays["slope"], rows)
        return {
            "params": state["params"],
            "slopes": jax.tree.map(
                lambda all_rows, new: all_rows.at[site].set(new, mode="drop"), state["slopes"], found
            ),
            "rows": state["rows"].at[site].set(rows, mode="drop"),
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
        part=part,
    )
