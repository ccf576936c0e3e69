"""Clusters of sites: several common models; in each round every site trains the one that fits its own patients best.

Mansour et al., "Three Approaches for Personalization with Applications to Federated Learning", 2020, section 3
(HypCluster); Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020 (IFCA).
Sends all the models down and one update of a single model's size up; a site reads its rows once more a round. The
server sees each answer by itself and learns which cluster a site chose; that choice is made from the rows without the
noise of a private model. The result depends on the start, and a cluster may stay without sites for ever: it then
starts anew beside the largest one (`revive`, not in the papers), where sites that the largest fits badly can split off.

clusters = 0 (not in the papers) lets the sites choose the number as well. All numbers from 1 to `most` are then trained
side by side, a site taking part in each. It never learns from a fifth of its rows, told by what stands in them, and
tells how well its model of each number predicts this fifth. The number with the smallest mean loss is the best; the
one used is the smallest that is not worse by more than `caution` standard errors between sites. That costs
most (most + 1) / 2 models down, `most` updates up, and a fifth of the rows: with the number known, train once more. It
finds the number that predicts best, which need not be the true one. Of 15 made-up triages at ten hospitals with 120
training patients each, of truly 1, 2 and 3 kinds, it was right in 15, 12 and 5 where the kinds differ much (degree 1;
in 6 of the last it took 4) and in 14, 9 and 0 at degree 0.7, where knowing the kinds hardly helps to predict.

Choices and losses travel very small, so that they take no room in the length to which `clip` cuts an answer; noise on
single answers would drown them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wardround.algorithms.model_interpolation import fold_of, gradient_without
from wardround.core import trees
from wardround.core.answers import Weights, side_by_side, weight_of
from wardround.core.bounds import Count, CountOrAll, Momentum, NotNegative, Positive
from wardround.core.contracts import Algorithm, Array, Key, Message, Model, Params, Personal, Shard, Tree
from wardround.core.descent import CHUNK, batches, descend, local_optimizer

Numbers = np.ndarray[Any, Any]

LABEL = "Model of its cluster"
NOBODY = -1
"""Stands for the cluster of a site that was not asked yet."""
FAINT = 1e-6
"""What is said beside the updates is multiplied by this: far below any update, far above the smallest number."""
FOLDS, ASIDE = 5, 0
"""Of five parts of its rows a site keeps one aside when it helps to choose the number."""


def cluster(
    model: Model,
    *,
    clusters: CountOrAll = 2,
    most: Count = 4,
    caution: NotNegative = 0.5,
    spread: Positive = 0.1,
    draw: CountOrAll = 0,
    revive: bool = True,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
) -> Algorithm:
    """Several common models, each trained by the sites it fits best (clusters 0: as many as serve, up to most)."""
    optimizer = local_optimizer(learning_rate, momentum)
    chooses, size = clusters == 0, batch_size or None
    groups = group_models(tuple(range(1, most + 1)) if chooses else (clusters,))

    def init(params: Params, sites: int) -> Tree:
        many = jax.tree.map(lambda a: jnp.broadcast_to(a, (groups.models, *jnp.shape(a))), params)
        # Centred: no start is nearer to the first model than another, and a single cluster is FedAvg itself.
        apart = jax.tree.map(
            lambda a: by_group(groups, lambda _, own: own - own.mean(axis=0), a), noise(many, spread, draw, 0)
        )
        return {
            "models": trees.add(many, apart),
            "chosen": jnp.full((sites, len(groups.numbers)), NOBODY, jnp.int32),
            "weight": jnp.zeros(sites),
            "round": jnp.zeros((), jnp.int32),
            "losses": jnp.zeros((sites, len(groups.numbers))),
            "votes": jnp.zeros(sites),
        }

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        models: Tree = message.arrays["models"]
        judging, learning = jax.random.split(key)
        learned, aside, count = model_losses(model, models, shard, judging, chooses)
        choice = jnp.argmin(jnp.where(groups.inside, learned, jnp.inf), axis=1)
        gradient = gradient_without(model.gradient, shard, ASIDE, FOLDS, size) if chooses else model.gradient

        def trained(start: Params) -> Params:
            return descend(gradient, optimizer, start, shard, learning, batch_size=size, passes=local_epochs)

        starts = take_models(models, choice)
        said = {
            "update": trees.subtract(jax.vmap(trained)(starts), starts),
            "choice": FAINT * jnp.sum(jax.nn.one_hot(choice, groups.models), axis=0),
        }
        if chooses:
            said["aside"] = FAINT * jnp.concatenate([aside[choice], count[None]])
        weight = weight_of(shard, weights)
        return Message({**trees.scale(said, weight), "weight": weight}), kept

    def server(state: Tree, stack: Message) -> Tree:
        weight, said = stack.arrays["weight"], stack.arrays["choice"]
        present = weight > 0
        choice = jnp.argmax(jnp.where(groups.inside, said[:, None], -1.0), axis=2)
        member = (members(choice, groups) & present[:, None]).astype(jnp.float32)
        # A cluster that nobody chose in this round has a total of 0 and stays where it is.
        total_weight = jnp.where(member.any(axis=0), weight @ member, 1.0)

        def moved(models: Array, updates: Array) -> Array:
            total = by_group(groups, lambda index, own: jnp.tensordot(own, updates[:, index], axes=(1, 0)), member.T)
            return models + total / align_with(total_weight, models)

        place = jnp.where(present, stack.arrays["site"], state["weight"].shape[0])
        after = {
            **state,
            "models": jax.tree.map(moved, state["models"], stack.arrays["update"]),
            "chosen": state["chosen"].at[place].set(choice.astype(jnp.int32), mode="drop"),
            "weight": state["weight"].at[place].set(weight, mode="drop"),
            "round": state["round"] + 1,
        }
        if chooses:
            # Losses by their count, both as they came: a factor that a transform put on the answer goes out.
            sums, count = stack.arrays["aside"][:, :-1], stack.arrays["aside"][:, -1]
            losses = jax.vmap(trees.divide_or_zero)(sums, count)
            after["losses"] = state["losses"].at[place].set(losses, mode="drop")
            after["votes"] = state["votes"].at[place].set(jnp.where(count > 0, weight, 0.0), mode="drop")
        return revive_clusters(after, noise(after["models"], spread, draw, after["round"]), groups) if revive else after

    def used(state: Tree) -> Array:
        """The group that is used: the smallest number of clusters that is not clearly worse than the best."""
        return fewest_adequate(state["losses"], state["votes"], caution) if chooses else jnp.zeros((), jnp.int32)

    def tells(state: Tree) -> Mapping[str, Array]:
        """Each site's cluster, counted from 1 (0: not asked yet), how many sites each has, and why this number."""
        now = used(state)
        place = state["chosen"][:, now]
        own = jnp.where(place == NOBODY, 0, place - jnp.asarray(groups.first)[now] + 1)
        sizes = {f"sites_in_cluster_{number}": jnp.sum(own == number) for number in range(1, groups.numbers[-1] + 1)}
        mean = trees.divide_or_zero(state["votes"] @ state["losses"], jnp.sum(state["votes"]))
        why = {f"loss_aside_with_{number}": loss for number, loss in zip(groups.numbers, mean, strict=True)}
        return {"cluster": own, **sizes, **({"clusters": now + 1, **why} if chooses else {})}

    def broadcast(state: Tree) -> Message:
        """All models and, where their number is to be found, which of them a site may use for its patients."""
        may_use = {"used": jnp.asarray(groups.inside)[used(state)].astype(jnp.float32)} if chooses else {}
        return Message({"models": state["models"], **may_use})

    def fit(message: Message, kept: Tree, shard: Shard, key: Key) -> Params:
        learned, aside, _ = model_losses(model, message.arrays["models"], shard, key, chooses)
        allowed = message.arrays["used"] > 0.5 if chooses else groups.inside[0]
        return take_models(message.arrays["models"], jnp.argmin(jnp.where(allowed, learned + aside, jnp.inf)))

    return Algorithm(
        init=init,
        init_client=lambda params: (),
        broadcast=broadcast,
        client=client,
        aggregator=side_by_side(),
        server=server,
        params=lambda state: take_models(state["models"], largest(state, groups)[used(state)]),
        predict=model.predict,
        passes=local_epochs,
        personal=Personal(fit),
        tells=tells,
        largest_batch=max(batch_size, CHUNK),
    )


class Groups(NamedTuple):
    """How the models stand: that of one cluster, then those of two, of three; or those of a single number."""

    numbers: tuple[int, ...]
    first: Numbers
    inside: Numbers
    """Whether each model (a column) belongs to each group (a row)."""

    @property
    def models(self) -> int:
        return sum(self.numbers)


def group_models(numbers: tuple[int, ...]) -> Groups:
    group = np.repeat(np.arange(len(numbers)), numbers)
    return Groups(numbers, np.cumsum(numbers) - numbers, group == np.arange(len(numbers))[:, None])


def by_group(groups: Groups, function: Callable[[int, Array], Array], array: Array) -> Array:
    """What the function makes of every group's own part of the array, one after the other."""
    places = zip(groups.first, groups.numbers, strict=True)
    return jnp.concatenate([function(index, array[at : at + number]) for index, (at, number) in enumerate(places)])


def noise(like: Tree, spread: float, draw: int, number: Array | int) -> Tree:
    """Normal numbers in the shape of `like`, others for every `number`."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(draw), number), len(leaves))
    drawn = [spread * jax.random.normal(key, jnp.shape(leaf)) for key, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


def model_losses(model: Model, models: Tree, shard: Shard, key: Key, keeps_aside: bool) -> tuple[Array, Array, Array]:
    """Every model's loss, added up over the rows learned from and over those kept aside, and how many these are."""

    def body(index: Array, so_far: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        batch, now = shard.batch(0, index, CHUNK), jax.random.fold_in(key, index)

        def total(mask: Array) -> Array:
            masked = batch._replace(mask=mask)
            return jax.vmap(lambda params: model.loss(params, masked, now))(models) * jnp.sum(mask)

        if not keeps_aside:
            return so_far[0] + total(batch.mask), so_far[1], so_far[2]
        aside = batch.mask * (fold_of(batch.x, FOLDS) == ASIDE)
        return so_far[0] + total(batch.mask - aside), so_far[1] + total(aside), so_far[2] + jnp.sum(aside)

    many = len(jax.tree.leaves(models)[0])
    nothing = (jnp.zeros(many), jnp.zeros(many), jnp.zeros(()))
    return jax.lax.fori_loop(0, batches(shard.longest, CHUNK), body, nothing)


def members(choice: Array, groups: Groups) -> Array:
    """Which site is in which cluster, of all groups."""
    return jnp.any(choice[:, :, None] == jnp.arange(groups.models), axis=1)


def largest(state: Tree, groups: Groups) -> Array:
    """Of every group, the cluster with most patients."""
    weight = state["weight"] @ members(state["chosen"], groups).astype(jnp.float32)
    return jnp.argmax(jnp.where(groups.inside, weight, -1.0), axis=1)


def revive_clusters(state: Tree, aside: Tree, groups: Groups) -> Tree:
    """Clusters that are no site's last choice begin again a random step away from the largest of their group."""
    empty = ~jnp.any(members(state["chosen"], groups), axis=0)
    beside = largest(state, groups)[np.argmax(groups.inside, axis=0)]

    def begin(models: Array, step: Array) -> Array:
        return jnp.where(align_with(empty, models), models[beside] + step, models)

    return {**state, "models": jax.tree.map(begin, state["models"], aside)}


def fewest_adequate(losses: Array, votes: Array, caution: float) -> Array:
    """The first column of losses (a row a site) whose mean is within `caution` standard errors of the smallest.

    The error is that of the mean difference to the best column, from how much it varies between the sites that vote.
    """
    share = trees.divide_or_zero(votes, jnp.sum(votes))
    voters = jnp.sum(votes > 0)
    apart = losses - losses[:, jnp.argmin(share @ losses), None]
    mean = share @ apart
    spread = jnp.square(share) @ jnp.square(apart - mean) * voters / jnp.maximum(1, voters - 1)
    return jnp.argmax(mean <= caution * jnp.sqrt(spread))


def align_with(values: Array, like: Array) -> Array:
    """One value a model, shaped so that it goes with the models' arrays."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))


def take_models(models: Tree, index: Array) -> Params:
    """One of the stacked models, or several."""
    some: Params = jax.tree.map(lambda a: a[index], models)
    return some
