"""How well each of several models does on every site's patients: all models judged at all sites in one exchange.

`begin` is given a STACK of K models (every array with a first axis of K). Losses are those of the predictions, as in
evaluation: minus the logarithm of the right class's probability (raised to 1e-7 at least), or the squared error. What
training adds to its loss (dropout, a pull of the weights towards 0) is left out.
Sends K models down, and K + K + K * K numbers up: for every pair of models also how far apart their losses are, row by
row, so that two models can be compared on the same patients. Needs the answers one by one, so no secure sum. The
number of models is part of the compiled program: keep it the same (a row for every site, say) to compile once.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.answers import answer, side_by_side
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Algorithm, Array, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK, batches
from wardround.core.quality import row_losses
from wardround.partners.probes.coarseness import coarse_means

TERMS = Terms(
    "how well models that it is sent do on its patients: the mean loss of each, and how they differ (exact where your"
    " smallest cell is 1, else without what fewer patients than a cell add, and on a grid of a patient's half step)",
    lambda of: 2 * of.models + of.models**2 + 1,
    given=trees.repeat,
)


@recorded("probe", TERMS)
def losses(
    model: Model, *, part: Literal["train", "validation", "test"] = "train", smallest_cell: Count = 1
) -> Algorithm:
    """The mean loss of each of several models at every site, with its standard error; state["loss"] has a row a site.

    The state holds, for S sites and K models: "loss" and "error" (S, K), "rows" (S,), "products" (S, K, K), the means
    of l_i * l_j over the site's rows, and "apart" (S, K, K), the means of (l_i - l_j)^2. All are 0 where a site has
    not answered; the error is 0 where it has a single row. A real site puts in the `smallest_cell` of its policy: above
    1 each mean is coarse (see `coarse_means`), since models can be made that differ for one patient only.
    """
    aggregator = side_by_side()

    def init(stack: Params, sites: int) -> Tree:
        count = stack_size(stack)
        return {
            "params": stack,
            "loss": jnp.zeros((sites, count)),
            "error": jnp.zeros((sites, count)),
            "products": jnp.zeros((sites, count, count)),
            "apart": jnp.zeros((sites, count, count)),
            "rows": jnp.zeros(sites),
        }

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        stack: Params = message.arrays["params"]
        count = stack_size(stack)

        def body(index: Array, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            total, squares, apart = sums
            batch = shard.batch(0, index, CHUNK)
            predicted = jax.vmap(lambda params: model.predict(params, batch.x))(stack)
            each = jnp.where(batch.mask > 0, jax.vmap(row_losses, (0, None))(predicted, batch.y), 0.0)
            # Squares of the differences themselves: from products, those of models that are alike would be lost.
            apart = apart + jax.lax.map(lambda own: jnp.sum(jnp.square(each - own), axis=1), each)
            return total + jnp.sum(each, axis=1), squares + jnp.sum(jnp.square(each), axis=1), apart

        if smallest_cell > 1:
            return coarse(stack, shard), kept
        start = (jnp.zeros(count), jnp.zeros(count), jnp.zeros((count, count)))
        sums = jax.lax.fori_loop(0, batches(shard.longest, CHUNK), body, start)
        total, squares, apart = trees.divide_or_zero(sums, shard.rows.astype(jnp.float32))
        found = {"loss": total, "squares": squares, "apart": apart}
        return answer(model, aggregator, stack, shard, "samples", found), kept

    def coarse(stack: Params, shard: Shard) -> Message:
        rows = jnp.asarray(shard.rows)
        places = -(-shard.x.shape[0] // CHUNK) * CHUNK

        def body(index: Array, each: Array) -> Array:
            batch = shard.batch(0, index, CHUNK)
            predicted = jax.vmap(lambda params: model.predict(params, batch.x))(stack)
            found = jax.vmap(row_losses, (0, None))(predicted, batch.y)
            return jax.lax.dynamic_update_slice(each, found.astype(jnp.float32), (0, index * CHUNK))

        each = jax.lax.fori_loop(0, batches(shard.longest, CHUNK), body, jnp.zeros((stack_size(stack), places)))
        mask = jnp.arange(places) < rows

        def means(values: Array) -> Array:
            return coarse_means(values, mask, rows, smallest_cell)

        # Of two models that are both infinitely wrong about a patient nothing is known of the difference.
        apart = jax.lax.map(lambda own: means(jnp.square(jnp.where(each == own, 0.0, each - own))), each)
        found = {"loss": means(each), "squares": means(jnp.square(each)), "apart": apart}
        weight = (rows - rows % smallest_cell).astype(jnp.float32)
        return Message({**trees.scale(found, weight), "weight": weight})

    def server(state: Tree, stack: Message) -> Tree:
        rows, site = stack.arrays["weight"], stack.arrays["site"]
        sums = {name: stack.arrays[name] for name in ("loss", "squares", "apart")}
        found = jax.vmap(trees.divide_or_zero)(sums, rows)
        mean, squares, apart = found["loss"], found["squares"], found["apart"]
        new = {
            "loss": mean,
            "error": standard_error(mean, squares, rows[:, None]),
            "apart": apart,
            "products": (squares[:, :, None] + squares[:, None, :] - apart) / 2,
            "rows": rows,
        }
        return {
            "params": state["params"],
            **{name: state[name].at[site].set(value, mode="drop") for name, value in new.items()},
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


def stack_size(stack: Params) -> int:
    """How many models lie in a stack."""
    return int(jnp.shape(jax.tree.leaves(stack)[0])[0])


def standard_error(mean: Array, squares: Array, rows: Array) -> Array:
    """Of a mean over rows, from the mean of the squares; 0 where fewer than two rows leave it open."""
    variance = jnp.maximum(squares - jnp.square(mean), 0.0)
    return jnp.sqrt(variance / jnp.maximum(rows - 1, 1.0))


def difference_errors(state: Tree) -> np.ndarray:
    """(sites, K, K): the standard error of loss_i - loss_j at each site, paired over its rows; NaN below two rows."""
    mean, apart, rows = (np.asarray(state[name], np.float64) for name in ("loss", "apart", "rows"))
    variance = np.maximum(apart - np.square(mean[:, :, None] - mean[:, None, :]), 0.0)
    enough = np.where(rows > 1, rows - 1, np.nan)
    return np.sqrt(variance / enough[:, None, None])
