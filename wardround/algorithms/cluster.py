"""Clusters of sites: several common models; in each round every site trains the one that fits its own patients best.

Mansour et al., "Three Approaches for Personalization with Applications to Federated Learning", 2020, section 3
(HypCluster); Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020 (IFCA).
Sends all the models down and one update of a single model's size up; a site reads its rows once more a round. The
server sees each answer by itself and learns which cluster a site chose; that choice is made from the rows without the
noise of a private model. The result depends on the start, and a cluster may stay without sites for ever: it then
starts anew beside the largest one (`revive`, not in the papers), where sites that the largest fits badly can split off.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from wardround.core import trees
from wardround.core.answers import Weights, side_by_side, weight_of
from wardround.core.bounds import Count, CountOrAll, Momentum, Positive
from wardround.core.contracts import Algorithm, Array, Key, Message, Model, Params, Personal, Shard, Tree
from wardround.core.descent import CHUNK, batches, descend, local_optimizer

LABEL = "Model of its cluster"
NOBODY = -1
"""Stands for the cluster of a site that was not asked yet."""


def cluster(
    model: Model,
    *,
    clusters: Count = 2,
    spread: Positive = 0.1,
    draw: CountOrAll = 0,
    revive: bool = True,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
) -> Algorithm:
    """Several common models, each trained by the sites it fits best (spread and draw: how their starts differ)."""
    optimizer = local_optimizer(learning_rate, momentum)

    def noise(like: Tree, number: Array | int) -> Tree:
        """Normal numbers in the shape of `like`, others for every `number`."""
        leaves, structure = jax.tree.flatten(like)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(draw), number), len(leaves))
        drawn = [spread * jax.random.normal(key, jnp.shape(leaf)) for key, leaf in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(structure, drawn)

    def init(params: Params, sites: int) -> Tree:
        many = jax.tree.map(lambda a: jnp.broadcast_to(a, (clusters, *jnp.shape(a))), params)
        # Centred: no start is nearer to the first model than another, and a single cluster is FedAvg itself.
        apart = jax.tree.map(lambda a: a - a.mean(axis=0), noise(many, 0))
        return {
            "models": trees.add(many, apart),
            "chosen": jnp.full(sites, NOBODY, jnp.int32),
            "weight": jnp.zeros(sites),
            "round": jnp.zeros((), jnp.int32),
        }

    def best(models: Tree, shard: Shard, key: Key) -> Array:
        """Which model has the smallest loss on the site's rows; the first of equals."""

        def body(index: Array, total: Array) -> Array:
            batch, now = shard.batch(0, index, CHUNK), jax.random.fold_in(key, index)
            losses = jax.vmap(lambda params: model.loss(params, batch, now))(models)
            return total + losses * jnp.sum(batch.mask)

        return jnp.argmin(jax.lax.fori_loop(0, batches(shard.longest, CHUNK), body, jnp.zeros(clusters)))

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        judging, learning = jax.random.split(key)
        choice = best(message.arrays["models"], shard, judging)
        start = taken(message.arrays["models"], choice)
        own = descend(
            model.gradient, optimizer, start, shard, learning, batch_size=batch_size or None, passes=local_epochs
        )
        weight = weight_of(shard, weights)
        said = {"update": trees.subtract(own, start), "choice": jax.nn.one_hot(choice, clusters)}
        return Message({**trees.scale(said, weight), "weight": weight}), kept

    def server(state: Tree, stack: Message) -> Tree:
        weight, choice = stack.arrays["weight"], jnp.argmax(stack.arrays["choice"], axis=1)
        present = weight > 0
        member = ((choice[:, None] == jnp.arange(clusters)) & present[:, None]).astype(jnp.float32)

        def moved(models: Array, updates: Array) -> Array:
            total = jnp.tensordot(member, updates, axes=(0, 0))
            # A cluster that nobody chose in this round has a total of 0 and stays where it is.
            size = jnp.where(member.any(axis=0), weight @ member, 1.0)
            return models + total / size.reshape(-1, *(1,) * (models.ndim - 1))

        models = jax.tree.map(moved, state["models"], stack.arrays["update"])
        place = jnp.where(present, stack.arrays["site"], state["chosen"].shape[0])
        after = {
            "models": models,
            "chosen": state["chosen"].at[place].set(choice.astype(jnp.int32), mode="drop"),
            "weight": state["weight"].at[place].set(weight, mode="drop"),
            "round": state["round"] + 1,
        }
        return revived(after) if revive else after

    def revived(state: Tree) -> Tree:
        """Clusters that are no site's last choice begin again a random step away from the largest one."""
        empty = sites_in(state) == 0
        aside = noise(state["models"], state["round"])

        def begin(models: Array, step: Array) -> Array:
            return jnp.where(empty.reshape(-1, *(1,) * (models.ndim - 1)), models[largest(state)] + step, models)

        return {**state, "models": jax.tree.map(begin, state["models"], aside)}

    def sites_in(state: Tree) -> Array:
        return jnp.sum(state["chosen"][:, None] == jnp.arange(clusters), axis=0)

    def largest(state: Tree) -> Array:
        return jnp.argmax(state["weight"] @ (state["chosen"][:, None] == jnp.arange(clusters)).astype(jnp.float32))

    def tells(state: Tree) -> Mapping[str, Array]:
        """Each site's cluster, counted from 1 (0: not asked yet), and how many sites each cluster has."""
        sizes = {f"sites_in_cluster_{number + 1}": size for number, size in enumerate(sites_in(state))}
        return {"cluster": state["chosen"] + 1, **sizes}

    def fit(message: Message, kept: Tree, shard: Shard, key: Key) -> Params:
        return taken(message.arrays["models"], best(message.arrays["models"], shard, key))

    return Algorithm(
        init=init,
        init_client=lambda params: (),
        broadcast=lambda state: Message({"models": state["models"]}),
        client=client,
        aggregator=side_by_side(),
        server=server,
        params=lambda state: taken(state["models"], largest(state)),
        predict=model.predict,
        passes=local_epochs,
        personal=Personal(fit),
        tells=tells,
        largest_batch=max(batch_size, CHUNK),
    )


def taken(models: Tree, index: Array) -> Params:
    """One of the stacked models."""
    one: Params = jax.tree.map(lambda a: a[index], models)
    return one
