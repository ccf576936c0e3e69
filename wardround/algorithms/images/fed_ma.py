"""FedMA: sites' units are matched before they are averaged, layer by layer, a layer a round.

Wang et al., "Federated Learning with Matched Averaging", ICLR 2020. The units of a hidden layer may stand in any order,
so that the average of two good networks may be a bad one. In the round of a layer every site trains it and all layers
above it, those below being frozen as they were matched, and sends this one layer. The server lays the sites' units on
one another (by the squared distance of what goes into them, solved exactly by the Hungarian method, site after site
against the running mean, twice) and averages; every site learns in which order its units were taken, and reorders what
the next layer reads. The last layer is averaged as it is. After as many rounds as layers it begins again.

Dense and convolutional layers in a chain, normalization belonging to the layer before it. Simplified: the width stays
(the paper lets it grow, by a Beta-Bernoulli process), and the last layer is weighted by patients, not by classes. With
`own_start` every site begins its first sweep with random weights of its own, where plain averaging fails.

Costs a message up of the largest layer and a model down each round. Needs each site's answer by itself, so a secure sum
cannot hide it. A site that missed the round before takes the common model and goes on from there.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from scipy.optimize import linear_sum_assignment

from wardround.core import trees
from wardround.core.answers import Weights, answer, side_by_side
from wardround.core.bounds import Count, CountOrAll, Momentum, Positive
from wardround.core.contracts import Algorithm, Array, Batch, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK, descend, local_optimizer
from wardround.core.errors import Refusal

LABEL = "Common model, units matched"
Numbers = np.ndarray[Any, Any]
PASSES = 2


class ChainLayer(NamedTuple):
    """A layer's arrays (kernel first), each with its shape, and how many units it has."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    units: int

    @property
    def size(self) -> int:
        return sum(int(np.prod(shape)) for _, shape in self.shapes)


def fed_ma(
    model: Model,
    *,
    own_start: bool = False,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
) -> Algorithm:
    """Units are matched before they are averaged, one layer a round (own_start: sites begin with own weights)."""
    optimizer, aggregator = local_optimizer(learning_rate, momentum), side_by_side()
    layers = chain_of(model)
    longest, widest = max(layer.size for layer in layers), max(layer.units for layer in layers)
    place = {name: index for index, layer in enumerate(layers) for name, _ in layer.shapes}

    def init(params: Params, sites: int) -> Tree:
        order = jnp.tile(jnp.arange(widest, dtype=jnp.int32), (sites, 1))
        return {"params": params, "step": jnp.zeros((), jnp.int32), "order": order}

    def broadcast(state: Tree) -> Message:
        return Message({"params": state["params"], "step": state["step"], "order": state["order"]})

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common, step = message.arrays["params"], message.arrays["step"]
        phase = step % len(layers)
        start = common
        if own_start:
            # Not from the round's key, which all methods share: a start of the site's own, the same in every run.
            own = model.init(jax.random.fold_in(jax.random.key(17), shard.site))
            start = trees.choose(step == 0, own, common)
        goes_on = (phase > 0) & (kept["step"] == step - 1)
        order = message.arrays["order"][jnp.minimum(shard.site, len(message.arrays["order"]) - 1)]
        reordered = reorder_inputs(kept["params"], layers, phase, order)
        begun = trees.choose(goes_on, reordered, start)
        frozen = {name: (place[name] >= phase).astype(jnp.float32) for name in common}
        # What lies below is the common model's, as it was matched.
        begun = {name: jnp.where(frozen[name] > 0, begun[name], common[name]) for name in common}

        def gradient(params: Params, batch: Batch, key: Key) -> Params:
            slope = model.gradient(params, batch, key)
            return {name: slope[name] * frozen[name] for name in slope}

        end = descend(gradient, optimizer, begun, shard, key, batch_size=batch_size or None, passes=local_epochs)
        sent = pack_layer(end, layers, phase, longest)
        return answer(model, aggregator, end, shard, weights, {"layer": sent}), {"params": end, "step": step}

    def fill(context: Any, out: Any, *given: Any) -> None:
        # Not `pure_callback`, which needs a thread of the pool whose threads wait here: it hung with large layers.
        phase, rows, weight, site = (np.asarray(one) for one in given)
        found = match_layer(layers, phase, rows, weight, site, np.asarray(out[1]).shape)
        for slot, value in zip(out, found, strict=True):
            np.copyto(np.asarray(slot), value)

    def server(state: Tree, stack: Message) -> Tree:
        phase = state["step"] % len(layers)
        shapes = jax.ShapeDtypeStruct((longest,), jnp.float32), jax.ShapeDtypeStruct(state["order"].shape, jnp.int32)
        rows = jax.vmap(trees.divide_or_zero)(stack.arrays["layer"], stack.arrays["weight"])
        given = (phase, rows, stack.arrays["weight"], stack.arrays["site"])
        mean, order = buffer_callback(fill, shapes, vmap_method="sequential")(*given)
        heard = jnp.sum(stack.arrays["weight"]) > 0
        params = trees.choose(heard, unpack_layer(state["params"], layers, phase, mean), state["params"])
        return {"params": params, "step": state["step"] + 1, "order": order}

    return Algorithm(
        init=init,
        init_client=lambda params: {"params": params, "step": jnp.full((), -1, jnp.int32)},
        broadcast=broadcast,
        client=client,
        aggregator=aggregator,
        server=server,
        params=lambda state: state["params"],
        predict=model.predict,
        largest_batch=max(batch_size, CHUNK),
        passes=local_epochs,
    )


def chain_of(model: Model) -> tuple[ChainLayer, ...]:
    """The model's layers from the input on; refuses what is not a chain of kernels."""
    names: list[str] = []

    def traced() -> Params:
        params = model.init(jax.random.key(0))
        names.extend(params)  # in the model's order, since JAX hands dictionaries back sorted
        return params

    shapes = {name: tuple(one.shape) for name, one in jax.eval_shape(traced).items()}
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.rpartition("/")[0], []).append(name)
    found: list[list[str]] = []
    for arrays in groups.values():
        kernels = [name for name in arrays if len(shapes[name]) > 1]
        if kernels or not found:
            found.append([*kernels, *(name for name in arrays if name not in kernels)])
        else:
            found[-1] += arrays  # normalization belongs to the layer before it
    layers = []
    for arrays in found:
        units = shapes[arrays[0]][-1] if shapes[arrays[0]] else 1
        if sum(len(shapes[name]) > 1 for name in arrays) > 1 or any(shapes[name][-1:] != (units,) for name in arrays):
            raise refuse_chain(arrays[0])
        layers.append(ChainLayer(tuple((name, shapes[name]) for name in arrays), units))
    for before, after in pairwise(layers):
        if int(np.prod(after.shapes[0][1][:-1])) % before.units:
            raise refuse_chain(after.shapes[0][0])
    return tuple(layers)


def refuse_chain(name: str) -> Refusal:
    return Refusal(
        f"units cannot be matched in a model that is not a chain of dense and convolutional layers ('{name}')",
        where="algorithm fed_ma",
        remedy="choose the model mlp, cnn or pain_cnn, or the algorithm fed_avg",
    )


def reorder_inputs(params: Params, layers: Sequence[ChainLayer], phase: Array, order: Array) -> Params:
    """The layer of this phase reads the units below it in the order in which the server took them."""
    made = dict(params)
    for index in range(1, len(layers)):
        name, shape = layers[index].shapes[0]
        units = layers[index - 1].units
        # Channels stand last among what a kernel reads, of convolutions as of flattened images.
        table = params[name].reshape(-1, units, shape[-1])
        made[name] = jnp.where(phase == index, table[:, order[:units]].reshape(shape), params[name])
    return made


def pack_layer(params: Params, layers: Sequence[ChainLayer], phase: Array, longest: int) -> Array:
    """The layer of this phase as a row as long as the longest layer."""
    packed: Array = jnp.zeros(longest)
    for index, layer in enumerate(layers):
        flat = jnp.concatenate([jnp.ravel(params[name]) for name, _ in layer.shapes])
        packed = jnp.where(phase == index, jnp.pad(flat, (0, longest - layer.size)), packed)
    return packed


def unpack_layer(params: Params, layers: Sequence[ChainLayer], phase: Array, packed: Array) -> Params:
    made = dict(params)
    for index, layer in enumerate(layers):
        at = 0
        for name, shape in layer.shapes:
            size = int(np.prod(shape))
            made[name] = jnp.where(phase == index, packed[at : at + size].reshape(shape), params[name])
            at += size
    return made


def match_layer(
    layers: Sequence[ChainLayer],
    phase: Numbers,
    rows: Numbers,
    weight: Numbers,
    site: Numbers,
    orders: tuple[int, ...],
) -> tuple[Numbers, Numbers]:
    """The average layer, and for every site which of its units stands in which place; the last layer as it is."""
    layer, there = layers[int(phase)], np.flatnonzero(weight > 0)
    order = np.tile(np.arange(orders[1], dtype=np.int32), (orders[0], 1))
    mean = np.zeros(rows.shape[1], np.float32)
    if not len(there):
        return mean, order
    units = np.stack([units_of(rows[row], layer) for row in there])
    places = np.tile(np.arange(layer.units), (len(there), 1))
    if int(phase) < len(layers) - 1:
        places = match_units(units, weight[there])
        order[site[there], : layer.units] = places
    laid = np.take_along_axis(units, places[..., None], axis=1)
    average = np.average(laid.astype(np.float64), axis=0, weights=weight[there])
    parts, at = [], 0
    for _, shape in layer.shapes:
        wide = int(np.prod(shape[:-1]))
        parts.append(average[:, at : at + wide].T.ravel())
        at += wide
    mean[: layer.size] = np.concatenate(parts)
    return mean, order


def units_of(row: Numbers, layer: ChainLayer) -> Numbers:
    """One line a unit: all that goes into it, and what is added to it."""
    parts, at = [], 0
    for _, shape in layer.shapes:
        size = int(np.prod(shape))
        parts.append(row[at : at + size].reshape(-1, layer.units).T)
        at += size
    return np.concatenate(parts, axis=1)


def match_units(units: Numbers, weight: Numbers) -> Numbers:
    """For every site, which of its units stands in each place: next to the mean of the others, in squared distance.

    `units` has the shape (sites, units, numbers). The site with most patients gives the first places.
    """
    places = np.tile(np.arange(units.shape[1]), (len(units), 1))
    first, *others = np.argsort(-weight, kind="stable")
    total, mean = float(weight[first]), units[first].astype(np.float64)
    for turn in range(PASSES):
        for one in others:
            own, share = units[one].astype(np.float64), float(weight[one])
            if turn:  # taken out, and matched again with what all the others became
                mean = (mean * total - own[places[one]] * share) / (total - share)
                total -= share
            square = np.square(mean).sum(1)[:, None] + np.square(own).sum(1) - 2 * mean @ own.T
            places[one] = linear_sum_assignment(square)[1]
            mean = (mean * total + own[places[one]] * share) / (total + share)
            total += share
    return places
