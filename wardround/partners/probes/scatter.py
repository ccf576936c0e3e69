"""Every site's mean gradient at one and the same model, and how it scatters from patient to patient.

What a score test needs to tell whether two sites differ beyond chance. Sends the model down and up to 256 numbers and
their second moments up, once; a larger model's gradient is told as random signed sums. Needs the answers one by one, so
no secure sum.
"""

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.answers import answer, side_by_side
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Algorithm, Array, Batch, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK, batches

WIDEST = 256
"""Numbers of a gradient that are told; of a larger model, random signed sums of its weights' gradients."""

TERMS = Terms(
    "the mean gradient of its patients' loss, and how single patients' gradients scatter around it",
    lambda of: min(WIDEST, of.parameters) * (1 + min(WIDEST, of.parameters)) + 1,
)


@recorded("probe", TERMS)
def scatter(model: Model) -> Algorithm:
    """A probe of one round: each site's mean gradient at the model sent, and the second moments over its patients."""
    aggregator = side_by_side()

    def init(params: Params, sites: int) -> Tree:
        told = min(WIDEST, parameter_count(params))
        return {
            "params": params,
            "slope": jnp.zeros((sites, told)),
            "square": jnp.zeros((sites, told, told)),
            "rows": jnp.zeros(sites),
        }

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        params: Params = message.arrays["params"]
        told = min(WIDEST, parameter_count(params))
        # One gradient a patient: of a large model only a few fit into memory at a time.
        size = max(1, min(CHUNK, 2**18 // parameter_count(params)))

        def one(x: Array, y: Array) -> Array:
            return sketch(model.gradient(params, Batch(x[None], y[None], jnp.ones(1)), key), told)

        def body(index: Array, total: tuple[Array, Array]) -> tuple[Array, Array]:
            batch = shard.batch(0, index, size)
            each = jax.vmap(one)(jnp.asarray(batch.x), jnp.asarray(batch.y))
            each = jnp.where(batch.mask[:, None] > 0, each, 0.0)
            return total[0] + jnp.sum(each, axis=0), total[1] + each.T @ each

        start = (jnp.zeros(told), jnp.zeros((told, told)))
        sums = jax.lax.fori_loop(0, batches(shard.longest, size), body, start)
        mean, square = trees.divide_or_zero(sums, jnp.asarray(shard.rows).astype(jnp.float32))
        return answer(model, aggregator, params, shard, "samples", {"slope": mean, "square": square}), kept

    def server(state: Tree, stack: Message) -> Tree:
        rows, site = stack.arrays["weight"], stack.arrays["site"]
        sums = {name: stack.arrays[name] for name in ("slope", "square")}
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
    flat = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
    if flat.size <= told:
        return flat
    bins, signs = jax.random.split(jax.random.key(0))
    where = jax.random.randint(bins, flat.shape, 0, told)
    return jax.ops.segment_sum(flat * jax.random.rademacher(signs, flat.shape, flat.dtype), where, told)
