"""The sum over rows of their gradients, each first cut to a largest length: what differential privacy adds noise to.

Most layers use their weights once, as inputs times weights or plus a bias. One pass back to the outputs of these uses
then gives for every row what its gradient is made of: the inputs and what came back. A row's length follows without its
gradient (Goodfellow, "Efficient Per-Example Gradient Computations", 2015), and the cut sum is one weighted product
(Bu et al., "Differentially Private Optimization on Large Model at Small Cost", ICML 2023), so that a private step costs
little more than a plain one. Where the same weights are used at many places of a row (convolutions), its gradient in
these weights is made, which is quicker than comparing all pairs of places. The uses are found in the model's own
program (its jaxpr), for one row, so that nothing is assumed about batches; a model with weights used in any other way
has the gradient of every row made in full, which is right for all models and slower.

Whoever chooses the parameters chooses the size of the numbers. So a row whose gradient, or its length, is not finite
counts as zero, lengths are computed so that small numbers do not vanish beside large ones, and a length that may be
rounded is taken to be as long as rounding allows: no parameters make a row count for more than `clip`.
"""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from wardround.core import trees
from wardround.core.contracts import Array, Batch, Key, Params

Loss = Callable[[Params, Batch, Key], Array]
View = Callable[[Any], Any]
LIKE_A_VIEW = ("reshape", "transpose", "squeeze", "expand_dims", "broadcast_in_dim", "convert_element_type", "copy")
INLINED = ("jit", "pjit", "closed_call", "core_call")
SMALLEST = 2.0**-126
"""The least number that is not rounded to 0."""
ROUNDED = 1e-5
"""Of the product of all lengths: by so much a sum over pairs of places may fall short of the squared length."""


class UnsupportedUse(Exception):
    """A parameter is used in a way that has no quick length."""


class ParameterView(NamedTuple):
    """A parameter as it stands after reshaping; `repeats` where one number of it stands in several places."""

    name: str
    view: View
    repeats: bool


class Product(NamedTuple):
    """Where a parameter is multiplied with the layer's inputs: how the axes of both fit together."""

    name: str
    view: View
    inputs_first: bool
    contracted: tuple[int, ...]
    """Axes of the inputs that are summed over,"""
    against: tuple[int, ...]
    """and those of the parameter's view."""


class Sum(NamedTuple):
    """Where a parameter is added."""

    name: str
    view: View


def clipped_sum(loss: Loss, params: Params, batch: Batch, clip: float, key: Key) -> Params:
    """The sum over rows whose mask is 1 of min(1, clip / |g|) g, where g is the gradient of the row's own loss."""
    taken = jnp.asarray(batch.mask) > 0
    # What stands in rows that do not count must not spread: 0 times NaN would be NaN.
    x, y = (jnp.where(taken.reshape(-1, *(1,) * (one.ndim - 1)), one, 0) for one in (batch.x, batch.y))
    keys = jax.random.split(key, len(taken))

    def one(params: Params, x: Array, y: Array, key: Key) -> Array:
        return loss(params, Batch(x[None], y[None], jnp.ones(1)), key)

    try:
        return _from_uses(one, params, (x, y, keys), taken, clip)
    except UnsupportedUse:
        return _from_gradients(one, params, (x, y, keys), taken, clip)


def clip_factors(squared: Array, taken: Array, clip: float) -> Array:
    """By how much each row's gradient is scaled: 0 for a row that does not count, or whose length is not finite."""
    # Not clip / max(norm, clip): with clip = inf that would be NaN, and it means no clipping.
    kept = taken & jnp.isfinite(squared)
    return jnp.where(kept, jnp.minimum(1.0, clip / jnp.sqrt(jnp.maximum(squared, 1e-30))), 0.0)


def rows_kept(values: Array, factor: Array) -> Array:
    """The values of rows that count; zero in others, whose infinities times 0 would spread."""
    return jnp.where((factor > 0).reshape(-1, *(1,) * (values.ndim - 1)), values, 0)


def weighted_sum(factor: Array, each: Array) -> Array:
    return jnp.tensordot(factor, rows_kept(each, factor), axes=(0, 0))


def _from_gradients(one: Any, params: Params, rows: Any, taken: Array, clip: float) -> Params:
    gradients = jax.vmap(jax.grad(one), (None, 0, 0, 0))(params, *rows)
    squared = jax.vmap(trees.squared_norm)(gradients)
    factor = clip_factors(squared, taken, clip)
    return {name: weighted_sum(factor, one) for name, one in gradients.items()}


def _from_uses(one: Any, params: Params, rows: Any, taken: Array, clip: float) -> Params:
    program = jax.make_jaxpr(one)(params, *jax.tree.map(lambda a: a[0], rows))
    names = sorted(params)  # the order in which JAX flattens a dictionary
    found = _Walk(program, names).uses(params, jax.tree.map(lambda a: a[0], rows))

    def shifted(shifts: list[Array], x: Array, y: Array, key: Key) -> tuple[Array, list[Any]]:
        walk = _Walk(program, names)
        return walk.run(params, (x, y, key), shifts), walk.inputs

    zeros = [jnp.zeros(shape, dtype) for shape, dtype in found.outputs]
    back, inputs = jax.vmap(jax.grad(shifted, has_aux=True), (None, 0, 0, 0))(zeros, *rows)
    parts = [_part(use, params[use.name], a, b) for use, a, b in zip(found.places, inputs, back, strict=True)]
    factor = clip_factors(sum((part.squared for part in parts), jnp.zeros(len(taken))), taken, clip)
    summed: Params = {name: jnp.zeros_like(array) for name, array in params.items()}
    for use, part in zip(found.places, parts, strict=True):
        summed[use.name] = part.summed(factor)
    return summed


class _Part(NamedTuple):
    """What one use gives: the squared length of every row's gradient in it, and their weighted sum."""

    squared: Array
    summed: Callable[[Array], Array]


def _part(use: Product | Sum, parameter: Array, inputs: Any, back: Array) -> _Part:
    rows = back.shape[0]
    to_parameter = jax.linear_transpose(use.view, parameter)
    if isinstance(use, Sum):
        # Added to all places of a row, a number's gradient is the sum over these places.
        each = jax.vmap(lambda b: to_parameter(b)[0])(back)
        squared = jnp.sum(jnp.square(each.reshape(rows, -1)), axis=1)
        return _Part(squared, lambda factor: weighted_sum(factor, each))
    a, b, in_view = _as_matrices(use, inputs, back)

    def restore(product: Array) -> Array:
        return to_parameter(in_view(product))[0]

    places, wide, outputs = a.shape[1], a.shape[2], b.shape[2]
    if places > 1 and places * (wide + outputs) >= wide * outputs:
        own = jnp.einsum("npk,npf->nkf", a, b)
        return _Part(jnp.sum(jnp.square(own), axis=(1, 2)), lambda f: restore(weighted_sum(f, own)))
    # Of each factor by itself, so that no square vanishes or overflows where the product does not.
    (a_size, a_unit), (b_size, b_unit) = _in_units(a), _in_units(b)
    apart = jnp.sum(jnp.square(a_unit), axis=(1, 2)) * jnp.sum(jnp.square(b_unit), axis=(1, 2))
    if places > 1:
        pairs = jnp.einsum("npk,nqk,npf,nqf->n", a_unit, a_unit, b_unit, b_unit, optimize=[(0, 1), (0, 1), (0, 1)])
        apart = jnp.maximum(pairs, 0.0) + ROUNDED * apart
    squared = jnp.square(a_size * b_size * jnp.sqrt(apart))

    def summed(factor: Array) -> Array:
        left = rows_kept(a, factor).reshape(rows * places, wide)
        right = rows_kept(b, factor) * factor[:, None, None]
        return restore(left.T @ right.reshape(rows * places, outputs))

    return _Part(squared, summed)


def _in_units(values: Array) -> tuple[Array, Array]:
    """The largest number of every row, and the row in units of it."""
    size = jnp.max(jnp.abs(values), axis=(1, 2))
    return size, values / jnp.maximum(size, SMALLEST)[:, None, None]


def _as_matrices(use: Product, inputs: Array, back: Array) -> tuple[Array, Array, View]:
    """Inputs as (rows, places, summed over), what came back as (rows, places, outputs), and the way to the view."""
    rows, axes = inputs.shape[0], range(inputs.ndim - 1)
    free = [axis for axis in axes if axis not in use.contracted]
    order = (0, *(axis + 1 for axis in free), *(axis + 1 for axis in use.contracted))
    places = prod(inputs.shape[axis + 1] for axis in free)
    a = jnp.transpose(inputs, order).reshape(rows, places, -1)
    summed_sizes = [inputs.shape[axis + 1] for axis in use.contracted]
    if use.inputs_first:
        output_sizes = back.shape[1 + len(free) :]
        b = back.reshape(rows, places, prod(output_sizes))
    else:
        output_sizes = back.shape[1 : back.ndim - len(free)]
        b = jnp.swapaxes(back.reshape(rows, prod(output_sizes), places), 1, 2)

    def in_view(product: Array) -> Array:
        """From (summed over, outputs) to the axes of the parameter's view."""
        full = product.reshape(*summed_sizes, *output_sizes)
        dims = len(summed_sizes) + len(output_sizes)
        others = [axis for axis in range(dims) if axis not in use.against]
        place = {axis: number for number, axis in enumerate([*use.against, *others])}
        return jnp.transpose(full, [place[axis] for axis in range(dims)])

    return a, b, in_view


class _Found(NamedTuple):
    places: list[Product | Sum]
    outputs: list[tuple[tuple[int, ...], Any]]


class _Walk:
    """Runs a model's program step by step, adds a shift to the result of every use, and keeps the inputs of each."""

    def __init__(self, program: ClosedJaxpr, names: list[str]) -> None:
        self.program, self.names = program, names
        self.places: list[Product | Sum] = []
        self.inputs: list[Any] = []
        self.outputs: list[tuple[tuple[int, ...], Any]] = []
        self.shifts: list[Array] | None = None

    def uses(self, params: Params, row: Any) -> _Found:
        """Where the parameters are used; raises UnsupportedUse where that is not once, in a product or a sum."""
        jax.eval_shape(lambda params, row: self.run(params, row, None), params, row)
        used = [use.name for use in self.places]
        if len(set(used)) < len(used):
            raise UnsupportedUse
        return _Found(self.places, self.outputs)

    def run(self, params: Params, row: Any, shifts: list[Array] | None) -> Array:
        self.shifts = shifts
        given = [*(params[name] for name in self.names), *jax.tree.leaves(row)]
        views: list[ParameterView | None] = [ParameterView(name, lambda p: p, False) for name in self.names]
        views += [None] * (len(given) - len(views))
        values, _ = self._jaxpr(self.program.jaxpr, self.program.consts, given, views)
        loss: Array = values[0]
        return loss

    def _jaxpr(
        self, jaxpr: Jaxpr, consts: Any, given: list[Any], views: list[ParameterView | None]
    ) -> tuple[list[Any], list[ParameterView | None]]:
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, given, strict=True))
        seen = {var: view for var, view in zip(jaxpr.invars, views, strict=True) if view is not None}

        def value(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        def view(atom: Any) -> ParameterView | None:
            return None if isinstance(atom, Literal) else seen.get(atom)

        for step in jaxpr.eqns:
            inside, of = [value(a) for a in step.invars], [view(a) for a in step.invars]
            name = step.primitive.name
            if name in INLINED:
                inner = step.params.get("jaxpr") or step.params["call_jaxpr"]
                results, made = self._jaxpr(inner.jaxpr, inner.consts, inside, of)
            elif not any(of):
                results, made = _bind(step, inside), [None] * len(step.outvars)
            elif name in LIKE_A_VIEW:
                results, made = _bind(step, inside), [_next_view(step, of[0])]
            else:
                results, made = [self._record_use(step, inside, of)], [None]
            values.update(zip(step.outvars, results, strict=True))
            seen.update((var, one) for var, one in zip(step.outvars, made, strict=True) if one is not None)
        last = [view(atom) for atom in jaxpr.outvars]
        if any(last) and jaxpr is self.program.jaxpr:
            raise UnsupportedUse  # the loss is a parameter
        return [value(atom) for atom in jaxpr.outvars], last

    def _record_use(self, step: Any, inside: list[Any], of: list[ParameterView | None]) -> Any:
        result = _bind(step, inside)[0]
        viewed = [one for one in of if one is not None]
        if len(viewed) != 1 or len(of) != 2:
            raise UnsupportedUse
        only, other = viewed[0], inside[1 if of[0] is not None else 0]
        name = step.primitive.name
        if name in ("add", "add_any"):
            view, shape = only.view, jnp.shape(result)
            self.places.append(Sum(only.name, lambda p: jnp.broadcast_to(view(p), shape)))
            self.inputs.append(())
        elif name == "dot_general" and not only.repeats:
            (left, right), (batched, _) = step.params["dimension_numbers"]
            if batched:
                raise UnsupportedUse
            first = of[0] is None
            contracted, against = (left, right) if first else (right, left)
            self.places.append(Product(only.name, only.view, first, tuple(contracted), tuple(against)))
            self.inputs.append(other)
        elif name == "convolve" and of[0] is None and not only.repeats:
            # As a product: what the kernel sees at every place, with the kernel as a matrix.
            geometry, view = step.params["geometry"], only.view
            as_matrix = Product(only.name, lambda p: view(p).reshape(-1, geometry.kernel[3]), True, (3,), (0,))
            self.places.append(as_matrix)
            self.inputs.append(geometry.patches(other))
        else:
            raise UnsupportedUse
        self.outputs.append((jnp.shape(result), result.dtype))
        return result if self.shifts is None else result + self.shifts[len(self.outputs) - 1]


def _bind(step: Any, inside: list[Any]) -> list[Any]:
    results = step.primitive.bind(*inside, **step.primitive.get_bind_params(step.params))
    return list(results) if step.primitive.multiple_results else [results]


def _next_view(step: Any, before: ParameterView | None) -> ParameterView:
    assert before is not None
    if step.primitive.name == "convert_element_type" and step.params["new_dtype"] != jnp.float32:
        raise UnsupportedUse
    if len(step.invars) != 1:
        raise UnsupportedUse
    grows = step.outvars[0].aval.size > step.invars[0].aval.size
    inner = before.view
    return ParameterView(before.name, lambda p: _bind(step, [inner(p)])[0], before.repeats or grows)
