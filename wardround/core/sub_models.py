"""Smaller models cut out of a large one: some units of each layer, with all that leads to them and away from them.

Which units lie along which axis of which array a model declares (`Model.units`). What is cut out is dense: an array
with half of its layer's units and half of the layer's before has a quarter of the numbers. Everything here is a gather
(a scatter is several times as slow inside a compiled loop), so it also works on traced choices of units.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from wardround.core.contracts import Array, Params, Units

Chosen = Mapping[str, Array]
"""For every layer the numbers of the units that are kept."""


class UnitForm(NamedTuple):
    """An array with axes of its own for units: where a layer's units stand several times over, an axis is split."""

    shape: tuple[int, ...]
    layers: tuple[str, ...]
    """The layer whose units lie along an axis, or ""."""
    repeats: tuple[int, ...]
    """For every axis of the array itself how often the units stand along it."""

    def split_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """With so many units in each layer."""
        return tuple(sizes[layer] if layer else size for size, layer in zip(self.shape, self.layers, strict=True))

    def whole_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The same with the axes of the array itself."""
        split = iter(self.split_shape(sizes))
        return tuple(next(split) * (next(split) if again > 1 else 1) for again in self.repeats)


def unit_counts(units: Units, shapes: Mapping[str, Any]) -> dict[str, int]:
    """How many units each layer has: where they stand once, an axis is as long as that."""
    counts: dict[str, int] = {}
    for name, layers in units:
        for layer, length in zip(layers, jnp.shape(shapes[name]), strict=True):
            if layer:
                counts[layer] = min(length, counts.get(layer, length))
    return counts


def unit_forms(units: Units, shapes: Mapping[str, Any]) -> dict[str, UnitForm]:
    """The form of every array; one that the declaration leaves out has no units."""
    counts, axes = unit_counts(units, shapes), dict(units)
    forms = {}
    for name, array in shapes.items():
        whole = jnp.shape(array)
        layers = axes.get(name, ("",) * len(whole))
        repeats = [length // counts[layer] if layer else 1 for layer, length in zip(layers, whole, strict=True)]
        split = [
            part
            for layer, length, again in zip(layers, whole, repeats, strict=True)
            for part in ([("", again), (layer, length // again)] if again > 1 else [(layer, length)])
        ]
        forms[name] = UnitForm(tuple(size for _, size in split), tuple(layer for layer, _ in split), tuple(repeats))
    return forms


def sizes_of(chosen: Chosen) -> dict[str, int]:
    return {layer: int(kept.shape[-1]) for layer, kept in chosen.items()}


def take(array: Array, numbers: Array, axis: int) -> Array:
    """What stands at these places of an axis, all of which exist: nothing is spent on looking whether they do."""
    places = (*(slice(None),) * axis, numbers)
    return jnp.asarray(array).at[places].get(mode="promise_in_bounds", wrap_negative_indices=False)


def cut_out(units: Units, params: Params, chosen: Chosen) -> Params:
    """The sub-model with the chosen units, its arrays smaller and dense."""
    forms, sizes = unit_forms(units, params), sizes_of(chosen)
    small: Params = {}
    for name, array in params.items():
        form = forms[name]
        found: Array = jnp.reshape(array, form.shape)
        for axis, layer in enumerate(form.layers):
            if layer and sizes[layer] < form.shape[axis]:
                found = take(found, chosen[layer], axis)
        small[name] = found.reshape(form.whole_shape(sizes))
    return small


def scale_inputs(units: Units, small: Params, counts: Mapping[str, int], chosen: Chosen, power: float = 1.0) -> Params:
    """A sub-model whose layers take what comes from n of N units (N / n)^power times.

    With power 1 the mean of a sum over draws of units is the whole's; with 1/2, where weights are of both signs, the
    mean of its square is, which power 1 would make N / n times as large, layer after layer.
    Arrays have what comes in along their last axis but one, as matrices and convolutions do.
    """
    axes, sizes = dict(units), sizes_of(chosen)
    found: Params = dict(small)
    for name, array in small.items():
        before = axes.get(name, ())[-2:-1]
        if before and before[0] and sizes[before[0]] < counts[before[0]]:
            found[name] = array * (counts[before[0]] / sizes[before[0]]) ** power
    return found


def places(chosen: Array, count: int) -> Array:
    """For each of a layer's units its place among the chosen ones; one behind the last where it is not chosen."""
    return jnp.full(count, chosen.shape[-1]).at[chosen].set(jnp.arange(chosen.shape[-1]))


def put_in(units: Units, whole: Params, small: Params, chosen: Chosen) -> Params:
    """Arrays of a sub-model in their places among zeros; `whole` tells the shapes."""
    forms, counts = unit_forms(units, whole), unit_counts(units, whole)
    where, sizes = {layer: places(kept, counts[layer]) for layer, kept in chosen.items()}, sizes_of(chosen)
    found: Params = {}
    for name, array in whole.items():
        form = forms[name]
        large = small[name].reshape(form.split_shape(sizes))
        # The last axis first: single numbers are moved while there are few of them, then whole rows.
        for axis, layer in reversed(list(enumerate(form.layers))):
            if layer and sizes[layer] < counts[layer]:
                # A slice of zeros behind the last, where all that is not there is looked up.
                large = jnp.pad(large, [(0, int(one == axis)) for one in range(large.ndim)])
                large = take(large, where[layer], axis)
        found[name] = large.reshape(jnp.shape(array))
    return found


def held(units: Units, whole: Params, chosen: Chosen, weight: Array) -> Params:
    """`weight` where the sub-model holds an entry and 0 elsewhere; axes along which it does not matter have length 1.

    Arrays that every sub-model holds whole are left out.
    """
    forms, counts = unit_forms(units, whole), unit_counts(units, whole)
    there = {
        layer: (places(kept, counts[layer]) < kept.shape[-1]).astype(jnp.float32) for layer, kept in chosen.items()
    }
    found: Params = {}
    for name, form in forms.items():
        if any(form.layers):
            part = weight
            for axis, layer in enumerate(form.layers):
                if layer:
                    part = part * jnp.expand_dims(there[layer], [one for one in range(len(form.layers)) if one != axis])
            found[name] = part
    return found


def mean_of_holders(units: Units, total: Params, holders: Params) -> Params:
    """Sums of updates over the sum of the weights of those who held each entry; 0 where nobody did."""
    forms = unit_forms(units, total)
    found: Params = dict(total)
    for name, weight in holders.items():
        array = total[name].reshape(forms[name].shape)
        found[name] = jnp.where(weight == 0, 0.0, array / jnp.where(weight == 0, 1.0, weight)).reshape(
            total[name].shape
        )
    return found
