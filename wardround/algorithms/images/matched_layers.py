"""Where a network's units stand in its arrays, layer by layer, and how a site's network is laid into a wider one.

A model that declares its units (`Model.units`) is taken at its word, and may grow. Any other is taken for a chain of
dense and convolutional layers in the order of its arrays, normalization belonging to the layer before it. The vectors
of an embedding are units of a layer of their own. Unused places of a wider network hold zeros all around, so that they
stay unused while it learns: what goes in and out of them has no gradient.
"""

from collections.abc import Mapping
from itertools import pairwise
from math import ceil, prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from wardround.core.contracts import Array, Model, Params, Units
from wardround.core.errors import Refusal
from wardround.core.sub_models import UnitForm, unit_counts, unit_forms

Shapes = Mapping[str, tuple[int, ...]]


class MatchedLayers(NamedTuple):
    """A network's layers from the input on, the last one being its outputs."""

    arrays: tuple[tuple[str, ...], ...]
    """Of every layer."""
    names: tuple[str, ...]
    """Of every layer but the last, by which its units are called."""
    forms: Mapping[str, UnitForm]
    own: Mapping[str, int]
    """Units that a site's network has in each layer."""
    most: Mapping[str, int]
    """Units that the common network may have."""

    def place(self, name: str) -> int:
        """The layer to which an array belongs."""
        return next(index for index, arrays in enumerate(self.arrays) if name in arrays)

    def below(self, index: int) -> str:
        return self.names[index - 1] if index else ""

    def shape(self, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """With axes of its own for units."""
        return self.forms[name].split_shape(sizes)

    def sent_sizes(self, index: int) -> dict[str, int]:
        """A site sends its own units of a layer, with what they read from all units of the common network below."""
        return {**self.most, **({self.names[index]: self.own[self.names[index]]} if index < len(self.names) else {})}

    def numbers(self, index: int, sizes: Mapping[str, int]) -> int:
        return sum(prod(self.shape(name, sizes)) for name in self.arrays[index])

    @property
    def longest_sent(self) -> int:
        return max(self.numbers(index, self.sent_sizes(index)) for index in range(len(self.arrays)))

    @property
    def longest(self) -> int:
        return max(self.numbers(index, self.most) for index in range(len(self.arrays)))

    @property
    def widest(self) -> int:
        return max(self.most.values(), default=1)


def layers_of(model: Model, growth: float = 0.0) -> MatchedLayers:
    """The model's layers; refuses what is not a chain, and growth where the model has one width only."""
    names: list[str] = []

    def traced() -> Params:
        params = model.init(jax.random.key(0))
        names.extend(params)  # in the model's order, since JAX hands dictionaries back sorted
        return params

    given = jax.eval_shape(traced)
    shapes = {name: tuple(one.shape) for name, one in given.items()}
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.rpartition("/")[0], []).append(name)
    if growth and not model.units:
        raise Refusal(
            "the common network cannot grow, since this model has one width only",
            where="algorithm fed_ma",
            remedy="set growth = 0.0, or choose the model mlp, cnn, all_conv or lstm",
        )
    units, layers = declared_units(model.units, groups, shapes) if model.units else chain_units(groups, shapes)
    own, forms = unit_counts(units, given), unit_forms(units, given)
    called = tuple(name for name, _ in layers[:-1])
    grows = {label for _, labels in model.units for label in labels if label}
    most = {name: own[name] + (ceil(growth * own[name]) if name in grows else 0) for name in called}
    for (before, _), (_, arrays) in pairwise(layers):
        read = {label for name in arrays for label in forms[name].layers}
        if before not in read:
            raise refuse_chain(arrays[0])
    return MatchedLayers(tuple(tuple(arrays) for _, arrays in layers), called, forms, own, most)


Layers = list[tuple[str, list[str]]]


def declared_units(units: Units, groups: Mapping[str, list[str]], shapes: Shapes) -> tuple[Units, Layers]:
    """As the model declares them; vectors of an embedding, which are declared nowhere, are units, too."""
    axes = {name: dict(units).get(name, ("",) * len(shape)) for name, shape in shapes.items()}
    layers: Layers = []
    for arrays in groups.values():
        label = next((axes[name][-1] for name in arrays if axes[name] and axes[name][-1]), "")
        layers.append((label, list(arrays)))
        if len(layers) > 1 and not layers[-2][0]:  # nothing was said about the units of the layer before
            before, read = layers[-2][1], arrays[0]
            if len(before) > 1 or axes[read][-2:-1] != ("",) or shapes[read][-2] != shapes[before[0]][-1]:
                raise refuse_chain(read)
            name = before[0].rpartition("/")[0]
            layers[-2] = (name, before)
            axes[before[0]] = (*axes[before[0]][:-1], name)
            axes[read] = (*axes[read][:-2], name, axes[read][-1])
    if layers[-1][0] or len({label for label, _ in layers}) < len(layers):
        raise refuse_chain(layers[-1][1][0])
    return tuple(axes.items()), layers


def chain_units(groups: Mapping[str, list[str]], shapes: Shapes) -> tuple[Units, Layers]:
    """Of a chain of kernels: what one gives along its last axis, the next reads along its last but one."""
    layers: Layers = []
    for group, arrays in groups.items():
        kernels = [name for name in arrays if len(shapes[name]) > 1]
        if kernels or not layers:
            layers.append((group or "layer", [*kernels, *(name for name in arrays if name not in kernels)]))
        else:
            layers[-1][1].extend(arrays)  # normalization belongs to the layer before it
    found: list[tuple[str, tuple[str, ...]]] = []
    before, width = "", 0
    for index, (name, arrays) in enumerate(layers):
        kernel, *others = arrays
        units = shapes[kernel][-1] if shapes[kernel] else 1
        own = name if index < len(layers) - 1 else ""
        if any(shapes[one] != (units,) for one in others):
            raise refuse_chain(kernel)
        if before and (len(shapes[kernel]) < 2 or not reads_units(shapes[kernel], width)):
            raise refuse_chain(kernel)
        front = ("",) * max(0, len(shapes[kernel]) - 2)
        found += [(kernel, (*front, before, own)[-len(shapes[kernel]) :] if shapes[kernel] else ())]
        found += [(one, (own,)) for one in others]
        before, width = name, units
    return tuple(found), [*layers[:-1], ("", layers[-1][1])]


def reads_units(kernel: tuple[int, ...], units: int) -> bool:
    """Whether a kernel reads so many units: channels as they are, a dense layer perhaps those of flattened pixels."""
    return kernel[-2] == units if len(kernel) > 2 else kernel[-2] % units == 0


def refuse_chain(name: str) -> Refusal:
    return Refusal(
        f"units cannot be matched in a model whose layers do not follow one another in a chain ('{name}')",
        where="algorithm fed_ma",
        remedy="choose the model mlp, cnn, all_conv, lstm or pain_cnn, or the algorithm fed_avg",
    )


def lay_units(array: Array, axis: int, order: Array) -> Array:
    """For every place along an axis what stands there: a unit by its number, or zeros (-1)."""
    found = jnp.take(array, jnp.maximum(order, 0), axis=axis)
    there = (order >= 0).astype(found.dtype)
    return found * jnp.expand_dims(there, [one for one in range(found.ndim) if one != axis])


def grow(layers: MatchedLayers, params: Params) -> Params:
    """A site's network in the first places of the common one's."""
    return resized(layers, params, layers.own, {name: padded(own, layers.most[name]) for name, own in counted(layers)})


def cut(layers: MatchedLayers, params: Params, order: Array) -> Params:
    """Of the common network the units that were matched with a site's own, in the site's order, in the first places."""
    places = {
        # The place of a site's unit is where the order has its number; all units of a site have one.
        name: jnp.pad(jnp.argmax(order[at, : layers.most[name]] == jnp.arange(own)[:, None], axis=1),
                      (0, layers.most[name] - own), constant_values=-1)
        for at, (name, own) in enumerate(counted(layers))
    }  # fmt: skip
    return resized(layers, params, layers.most, places)


def read_matched(layers: MatchedLayers, params: Params, phase: Array, order: Array) -> Params:
    """The layer of this phase reads the units below it in the order in which the server took them."""
    made = dict(params)
    for index in range(1, len(layers.arrays)):
        below = layers.below(index)
        for name in layers.arrays[index]:
            form = layers.forms[name]
            if below in form.layers:
                table = params[name].reshape(layers.shape(name, layers.most))
                laid = lay_units(table, form.layers.index(below), order[index - 1, : layers.most[below]])
                made[name] = jnp.where(phase == index, laid.reshape(params[name].shape), params[name])
    return made


def counted(layers: MatchedLayers) -> list[tuple[str, int]]:
    return [(name, layers.own[name]) for name in layers.names]


def padded(own: int, most: int) -> Array:
    numbers = jnp.arange(most)
    return jnp.where(numbers < own, numbers, -1)


def resized(
    layers: MatchedLayers, params: Params, sizes: Mapping[str, int], places: Mapping[str, Array]
) -> dict[str, Array]:
    made = {}
    for name, array in params.items():
        form = layers.forms[name]
        found: Array = jnp.reshape(array, layers.shape(name, sizes))
        for axis, label in enumerate(form.layers):
            if label:
                found = lay_units(found, axis, places[label])
        made[name] = found.reshape(form.whole_shape(layers.most))
    return made


def pack_layer(layers: MatchedLayers, params: Params, phase: Array) -> Array:
    """A site's layer of this phase, as a row as long as the longest layer that is sent."""
    packed: Array = jnp.zeros(layers.longest_sent)
    for index, arrays in enumerate(layers.arrays):
        sizes, parts = layers.sent_sizes(index), []
        for name in arrays:
            table = jnp.reshape(params[name], layers.shape(name, layers.most))
            parts.append(jnp.ravel(table[tuple(slice(size) for size in layers.shape(name, sizes))]))
        flat = jnp.concatenate(parts)
        packed = jnp.where(phase == index, jnp.pad(flat, (0, len(packed) - len(flat))), packed)
    return packed


def unpack_layer(layers: MatchedLayers, params: Params, phase: Array, packed: Array) -> Params:
    """The common network with its layer of this phase replaced."""
    made = dict(params)
    for index, arrays in enumerate(layers.arrays):
        at = 0
        for name in arrays:
            size = prod(layers.shape(name, layers.most))
            made[name] = jnp.where(phase == index, packed[at : at + size].reshape(params[name].shape), params[name])
            at += size
    return made


def split_row(layers: MatchedLayers, index: int, row: Any) -> dict[str, Any]:
    """The arrays of a layer that was sent, with axes of their own for units."""
    sizes, at = layers.sent_sizes(index), 0
    found = {}
    for name in layers.arrays[index]:
        shape = layers.shape(name, sizes)
        found[name] = row[at : at + prod(shape)].reshape(shape)
        at += prod(shape)
    return found
