"""How many floating-point operations a function takes: those of its matrix products, told by tracing it.

Loops of known length count as often as they run. What is done number by number is left out; in a network it is little
beside the products.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from wardround.core.contracts import Batch, Model, Params


def count_operations(function: Callable[..., Any], *given: Any) -> int:
    """Multiplications and additions of the matrix products in one call with arguments of these shapes."""
    return _count(jax.make_jaxpr(function)(*given).jaxpr)


def operations_per_row(model: Model, params: Params, row: tuple[Any, Any], rows: int = 10) -> float:
    """Operations of a gradient, for each row of a batch."""
    x, y = (jax.ShapeDtypeStruct((rows, *part.shape), part.dtype) for part in row)
    mask = jax.ShapeDtypeStruct((rows,), np.float32)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
    return (
        count_operations(lambda p, x, y, m: model.gradient(p, Batch(x, y, m), jax.random.key(0)), shapes, x, y, mask)
        / rows
    )


def _count(jaxpr: Any) -> int:
    total = 0
    for step in jaxpr.eqns:
        times = int(step.params["length"]) if step.primitive.name == "scan" else 1
        if step.primitive.name == "dot_general":
            (contracted, _), _ = step.params["dimension_numbers"]
            summed = int(np.prod([step.invars[0].aval.shape[axis] for axis in contracted]))
            total += 2 * summed * int(np.prod(step.outvars[0].aval.shape))
        for inner in jax.tree.leaves(
            list(step.params.values()), is_leaf=lambda one: hasattr(one, "eqns") or hasattr(one, "jaxpr")
        ):
            body = getattr(inner, "jaxpr", inner)
            if hasattr(body, "eqns"):
                total += times * _count(body)
    return total
