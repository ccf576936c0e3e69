"""Weight Erosion: a model for one asking site, in which partners count less the longer their gradients differ from its.

Grimberg, "Incentivized, Privacy-preserving, and Personalized Distributed Machine Learning Framework for Medical Data",
EPFL 2020, section 4.5, algorithm 1. Every site starts at weight 1; in each round it loses
(1 + p_s floor((r - 1) b / |S_i|)) p_d |g_i - g_0| / |g_0| of it, down to 0, and the model takes one step along the
weighted mean. g_i is the gradient of one batch of b rows, or what local training changed (footnote 16); r counts the
rounds the site really took part in. A site with fewer rows than b is charged for b, as printed. With batch_size 0, and
with local training, b is what the site goes through in a round: all its rows, in local training `local_epochs` times.

Needs the answers one by one, so no secure sum (two servers can do it), and a stack of them in the server's memory; the
traffic is FedSGD's. The own distance of the asking site is 0, so its weight stays 1. A round in which it is absent, or
in which its gradient is 0, has nothing to compare with: it is skipped, as though it had not been (no erosion, no step,
no round counted). A newcomer, not there in the first round that counted, starts at the mean or median weight of the
known sites present.

The local model of the asking site is an attractor: close to it g_0 vanishes and every partner seems far away.
stop = "cone" therefore freezes model and weights for good once the gradients no longer fit into a cone: before the
first step that would lead a site uphill (its gradient has a negative inner product with the weighted mean) whose weight
is above 0 and whom an earlier step had led downhill. A site that was against the others from the start does not stop
the training; it is left to erode. The rule cannot act where all partners erode before they leave the cone, and
gradients of small batches leave it by chance: give it batch_size 0.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from wardround.core import trees
from wardround.core.answers import answer, side_by_side
from wardround.core.bounds import Count, CountOrAll, NotNegative, Positive
from wardround.core.contracts import Algorithm, Array, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK, descend, full_gradient, local_optimizer
from wardround.core.errors import Refusal

LABEL = "Personal model (Weight Erosion)"

LARGEST = 1e30
"""Told for a distance past it, where the asking site's gradient all but vanishes: records cannot hold infinities."""


def weight_erosion(
    model: Model,
    *,
    user: int = 0,
    updates: Literal["gradient", "local"] = "gradient",
    p_d: NotNegative = 0.01,
    p_s: NotNegative = 0.2,
    newcomers: Literal["mean", "median"] = "mean",
    stop: Literal["never", "cone"] = "never",
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
) -> Algorithm:
    """A model for the asking site: partners lose weight while their gradients differ from its own (0: all rows)."""
    optimizer = local_optimizer(learning_rate, 0.0)
    # Distances, angles and one weighted sum are all that is looked at.
    aggregator = side_by_side()._replace(products=True)

    def init(params: Params, sites: int) -> Tree:
        if not 0 <= user < sites:
            raise Refusal(
                f"there is no site number {user} to train for",
                where="user",
                remedy=f"give a number from 0 to {sites - 1}, or the site's name as user in [study]",
            )
        return {
            "params": params,
            "alpha": jnp.ones(sites),
            "distance": jnp.zeros(sites),
            "rounds": jnp.zeros(sites, jnp.int32),
            "within": jnp.zeros(sites, bool),
            "skipped": jnp.int32(0),
            "stopped": jnp.bool_(False),
        }

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common: Params = message.arrays["params"]
        size = batch_size or None
        if updates == "local":
            own = descend(model.gradient, optimizer, common, shard, key, batch_size=size, passes=local_epochs)
            moved = trees.subtract(own, common)
        elif size is None:
            moved = trees.scale(full_gradient(model.gradient, common, shard, key), -learning_rate)
        else:
            moved = trees.scale(model.gradient(common, shard.batch(0, 0, size), key), -learning_rate)
        # Weighted by its rows only for the server to learn |S_i|: in the mean a site counts by alpha alone.
        return answer(model, aggregator, common, shard, "samples", {"update": moved}), kept

    def times_used(earlier: Array, rows: Array) -> Array:
        """How often the site has gone through its rows in earlier rounds: whole numbers, so that the floor is exact."""
        if updates == "local":
            return earlier * local_epochs
        return earlier * batch_size // jnp.maximum(1, jnp.rint(rows).astype(jnp.int32)) if batch_size else earlier

    def weights_before(state: Tree, site: Array, earlier: Array) -> Array:
        """The weights the sites come with; a newcomer's is drawn from those of the known sites that are present."""
        alpha = state["alpha"].at[site].get(mode="fill", fill_value=0.0)
        known = earlier > 0
        middle = jnp.nanmean if newcomers == "mean" else jnp.nanmedian
        typical = middle(jnp.where(known, alpha, jnp.nan))
        # Nobody is known in the first round that counts: all start at 1, as `init` has it.
        return jnp.where(known | ~jnp.any(known), alpha, typical)

    def server(state: Tree, stack: Message) -> Tree:
        rows = stack.arrays["weight"]
        present = rows > 0
        site = jnp.where(present, stack.arrays["site"], len(state["alpha"]))
        # Steps instead of gradients: a common factor changes neither relative distances nor angles.
        steps = jax.vmap(trees.divide_or_zero)(stack.arrays["update"], rows)
        asking = site == user
        own = jax.tree.map(lambda all_steps: all_steps[jnp.argmax(asking)], steps)
        length = jnp.sqrt(trees.squared_norm(own))
        comparable = jnp.any(asking) & (length > 0)

        apart = jnp.sqrt(jax.vmap(trees.squared_norm)(trees.subtract(steps, own)))
        # Said outright for the asking site: compiled, the difference to itself can be a rounding error instead of 0.
        distance = jnp.where(asking, 0.0, jnp.minimum(apart / jnp.where(length > 0, length, 1.0), LARGEST))
        earlier = state["rounds"].at[site].get(mode="fill", fill_value=0)
        eroded = (1 + p_s * times_used(earlier, rows)) * (p_d * distance)
        alpha = jnp.where(present, jnp.maximum(0.0, weights_before(state, site, earlier) - eroded), 0.0)

        shares = trees.divide_or_zero(alpha, jnp.sum(alpha))
        mean = jax.tree.map(lambda weighted: weighted.sum(axis=0), jax.vmap(trees.scale)(steps, shares))
        along = jnp.where(alpha > 0, jax.vmap(inner_product, (0, None))(steps, mean), 0.0)
        was_within = state["within"].at[site].get(mode="fill", fill_value=False)
        leaves_cone = jnp.any(was_within & (along < 0)) if stop == "cone" else jnp.bool_(False)
        after = {
            "params": trees.choose(leaves_cone, state["params"], trees.add(state["params"], mean)),
            "alpha": state["alpha"].at[site].set(alpha, mode="drop"),
            "distance": state["distance"].at[site].set(distance, mode="drop"),
            "rounds": state["rounds"].at[site].add(1, mode="drop"),
            "within": state["within"].at[site].set(was_within | (along > 0), mode="drop"),
            "skipped": state["skipped"],
            "stopped": leaves_cone,
        }
        skipped = {**state, "skipped": state["skipped"] + 1}
        return trees.choose(state["stopped"], state, trees.choose(comparable, after, skipped))

    def tells(state: Tree) -> dict[str, Array]:
        """Weights and last distances; a site that never took part has no weight in the model, so it is told as 0."""
        return {
            "alpha": jnp.where(state["rounds"] > 0, state["alpha"], 0.0),
            **{name: state[name] for name in ("distance", "rounds", "skipped", "stopped")},
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
        passes=local_epochs if updates == "local" else 1,
        tells=tells,
        largest_batch=max(batch_size, CHUNK),
    )


def inner_product(a: Tree, b: Tree) -> Array:
    """The inner product of two models' worth of numbers."""
    return sum((jnp.sum(p * q) for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)), jnp.zeros(()))
