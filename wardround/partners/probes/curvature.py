"""Solves Hessian systems over the rows of all sites at once, without any site writing its Hessian down.

Conjugate gradients (Hestenes and Stiefel 1952) for many right-hand sides side by side: each round is one iteration,
in which every site answers its Hessian times the present directions (Pearlmutter, "Fast exact multiplication by the
Hessian", 1994; here forward over reverse differentiation). The server keeps the iterates, so all rounds run in one
call; a column that has converged, or meets a direction along which the loss does not bend upwards, stays put.
Needs a model that JAX can differentiate twice (none from PyTorch), and only the sum of the answers. Sends the model and
a vector of its size a column down, as much up, every round; as many rounds as the model has parameters at most, far
fewer where columns are scaled alike.
"""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from wardround.core import trees
from wardround.core.answers import Weights, answer
from wardround.core.bounds import NotNegative, Positive
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Aggregator, Algorithm, Array, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK, batches

NOBODY = -1

TERMS = Terms(
    "how its patients' loss bends around a model",
    lambda of: of.sites * of.parameters + of.sites + 1,
    given=lambda params, models: {
        "model": params,
        "right": trees.repeat(params, models),
        "without": jnp.zeros(models, jnp.int32),
    },
)


@recorded("probe", TERMS)
def curvature(
    model: Model,
    *,
    part: Literal["train", "validation", "test"] = "train",
    weights: Weights = "samples",
    damping: NotNegative = 1e-4,
    tolerance: Positive = 1e-5,
) -> Algorithm:
    """Steps that solve (H + damping) step = right for many columns, H each time the Hessian without one of the sites.

    The probe's params are {"model", "right", "without"}: `right` has one right-hand side a row, `without` (columns,)
    the site that each column leaves out, NOBODY for none. H is the Hessian of the mean loss over the column's sites.
    state["solution"] has the steps, state["left"] the residual relative to the right-hand side (0 where that is 0), and
    state["level"] is true where a direction did not bend upwards and the column stopped early.
    """

    def init(params: Params, sites: int) -> Tree:
        right = params["right"]
        size = inner_products(right, right)
        return {
            "model": params["model"],
            "without": jnp.asarray(params["without"], jnp.int32),
            "solution": trees.zeros(right),
            "residual": right,
            "direction": trees.copy(right),
            "size": size,
            "start": jnp.array(size),
            "left": jnp.where(size > 0, 1.0, 0.0),
            "level": jnp.zeros(size.shape, bool),
        }

    def broadcast(state: Tree) -> Message:
        sent = {name: state[name] for name in ("model", "without", "direction")}
        return Message({**sent, "busy": jnp.any(is_unsolved(state)).astype(jnp.int32)})

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        at, direction = message.arrays["model"], message.arrays["direction"]
        products = products_of(at, direction, shard, message.arrays["busy"])
        counts = (message.arrays["without"] != shard.site).astype(jnp.float32)
        arrays = {"products": scale_rows(products, counts), "counts": counts}
        return answer(model, aggregator, at, shard, weights, arrays), kept

    def server(state: Tree, total: Message) -> Tree:
        direction, size = state["direction"], state["size"]
        counts = total.arrays["counts"]
        share = jnp.where(counts > 0, 1 / jnp.where(counts > 0, counts, 1), 0)
        bent = trees.add(scale_rows(total.arrays["products"], share), trees.scale(direction, damping))
        bend = inner_products(direction, bent)
        going = is_unsolved(state) & (bend > 0)
        step = jnp.where(going, size / jnp.where(going, bend, 1), 0)
        residual = trees.subtract(state["residual"], scale_rows(bent, step))
        after = inner_products(residual, residual)
        turn = jnp.where(going, after / jnp.where(going, size, 1), 0)
        return {
            **state,
            "solution": trees.add(state["solution"], scale_rows(direction, step)),
            "residual": residual,
            "direction": trees.add(residual, scale_rows(direction, turn)),
            "size": after,
            "left": jnp.sqrt(
                jnp.where(state["start"] > 0, after / jnp.where(state["start"] > 0, state["start"], 1), 0)
            ),
            "level": state["level"] | (is_unsolved(state) & ~going),
        }

    def is_unsolved(state: Tree) -> Array:
        return (state["left"] > tolerance) & ~state["level"]

    aggregator = plain_sum()
    # Inside a program of its own: an engine that looks at the client's shapes anew need not trace it anew.
    products_of = jax.jit(partial(hessian_products, model))
    return Algorithm(
        init=init,
        init_client=lambda params: (),
        broadcast=broadcast,
        client=client,
        aggregator=aggregator,
        server=server,
        params=lambda state: {"model": state["model"], "right": state["residual"], "without": state["without"]},
        predict=lambda params, x: model.predict(params["model"], x),
        part=part,
    )


def plain_sum() -> Aggregator:
    """Hands the sum of the answers to the server: columns count different sites, so each is divided by its own."""
    return Aggregator(init=lambda template: (), reduce=lambda state, total: (total, state), linear=True)


def hessian_products(model: Model, at: Params, directions: Tree, shard: Shard, busy: Array) -> Tree:
    """The Hessian of the site's mean loss times each row of `directions`, in chunks of rows; 0 unless `busy` is 1."""

    def body(index: Array, total: Tree) -> Tree:
        batch = shard.batch(0, index, CHUNK)
        # One key for all rounds: where a model draws dropout masks, the Hessian must not change between iterations.
        _, product = jax.linearize(lambda params: model.gradient(params, batch, jax.random.key(0)), at)
        return trees.add(total, trees.scale(jax.vmap(product)(directions), jnp.sum(batch.mask)))

    total = jax.lax.fori_loop(0, busy * batches(shard.longest, CHUNK), body, trees.zeros(directions))
    return trees.divide_or_zero(total, shard.rows.astype(jnp.float32))


def scale_rows(rows: Tree, factors: Array) -> Tree:
    """Each row times its own factor."""
    return jax.tree.map(lambda a: a * jnp.reshape(factors, (-1, *(1,) * (jnp.ndim(a) - 1))), rows)


def inner_products(a: Tree, b: Tree) -> Array:
    """The inner product of each row of a with that of b."""
    parts = jax.tree.map(lambda p, q: jnp.sum(jnp.reshape(p * q, (p.shape[0], -1)), axis=1), a, b)
    return sum(jax.tree.leaves(parts), jnp.zeros(()))
