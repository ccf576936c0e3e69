"""What every site's patients say about one and the same model: which way they would change it, and how surely.

For small changes of the model these two, the score and the Fisher information, are all that a site's likelihood has to
say (they are sufficient), so that sites can be compared, and their common models foretold, without any being trained.
The information is the expected one: each patient's gradient for every outcome, weighted by how likely the model holds
that outcome to be. So it depends on the patients' features and on the model, not on their outcomes, and a penalty of
the model (l2) drops out. For a regression both are in units of a residual; `spread` is the mean squared one.
Sends the model down and up to 256 numbers and their products in pairs up, once for every model that is asked about; a
larger model's gradient is told as random signed sums. Needs the answers one by one, so no secure sum.
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
    "which way its patients would change a model, and how surely: the mean gradient of their loss and its information",
    lambda of: min(WIDEST, of.parameters) * (1 + min(WIDEST, of.parameters)) + 2,
)


@recorded("probe", TERMS)
def information(model: Model) -> Algorithm:
    """A probe of one round: each site's mean score at the model sent, and the mean information of a patient."""
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

        def gradient(x: Array, y: Array) -> Array:
            return sketch(model.gradient(params, Batch(x[None], y[None], jnp.ones(1)), key), told)

        def of_classes(x: Array, y: Array, predicted: Array) -> tuple[Array, Array, Array]:
            each = jax.vmap(lambda outcome: gradient(x, outcome))(jnp.arange(predicted.shape[0], dtype=y.dtype))
            # Under the model's own risks the mean gradient of the data is 0: what is left of it is a penalty's.
            penalty = predicted @ each
            apart = each - penalty
            return gradient(x, y) - penalty, (apart * predicted[:, None]).T @ apart, jnp.ones(())

        def of_value(x: Array, y: Array, predicted: Array) -> tuple[Array, Array, Array]:
            rest = gradient(x, predicted)
            # The gradient of a squared error is linear in the residual, whatever constant stands before it.
            unit = (rest - gradient(x, predicted + 1)) / 2
            return (predicted - y) * unit, unit[:, None] * unit, jnp.square(predicted - y)

        def body(index: Array, total: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            batch = shard.batch(0, index, size)
            predicted = model.predict(params, batch.x)
            one = of_value if predicted.ndim == 1 else of_classes
            each = jax.vmap(one)(jnp.asarray(batch.x), jnp.asarray(batch.y), predicted)
            return jax.tree.map(
                lambda so_far, found: so_far + jnp.tensordot(batch.mask, jnp.where(batch.mask.reshape(-1, *(1,) * (found.ndim - 1)) > 0, found, 0.0), 1),
                total,
                each,
            )

        start = (jnp.zeros(told), jnp.zeros((told, told)), jnp.zeros(()))
        sums = jax.lax.fori_loop(0, batches(shard.longest, size), body, start)
        slope, bend, spread = trees.divide_or_zero(sums, jnp.asarray(shard.rows).astype(jnp.float32))
        arrays = {"slope": slope, "bend": bend, "spread": spread}
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
    flat = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
    if flat.size <= told:
        return flat
    bins, signs = jax.random.split(jax.random.key(0))
    where = jax.random.randint(bins, flat.shape, 0, told)
    return jax.ops.segment_sum(flat * jax.random.rademacher(signs, flat.shape, flat.dtype), where, told)


def moved(params: Params, change: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Params | None:
    """The model changed by so much along what `sketch` tells of it; none where that is not one number a weight."""
    leaves, form = jax.tree.flatten(params)
    sizes = [int(np.prod(jnp.shape(leaf))) for leaf in leaves]
    if sum(sizes) != len(change):
        return None
    parts = np.split(change, np.cumsum(sizes)[:-1])
    found: Params = jax.tree.unflatten(
        form, [leaf + jnp.asarray(part.reshape(jnp.shape(leaf)), leaf.dtype) for leaf, part in zip(leaves, parts, strict=True)]
    )
    return found
