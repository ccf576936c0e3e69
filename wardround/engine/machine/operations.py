"""How many floating-point operations a function takes: those of its products and convolutions, told by tracing it.

Loops of known length count as often as they run (the compiler's own count takes their body once). What is done number
by number is left out; in a network it is little beside the products. This is the one count for LEAF's tables, for
`[budget] flops` and for methods compared at equal cost.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.interpreters import partial_eval

from wardround.core.contracts import Algorithm, Batch, Model, Params, Task
from wardround.engine.split_round import plain_message, row_of


def count_operations(function: Callable[..., Any], *given: Any) -> int:
    """Multiplications and additions of the matrix products in one call with arguments of these shapes."""
    traced = jax.make_jaxpr(function)(*given).jaxpr
    # What nothing depends on is never computed, such as the slope of a network's own inputs.
    needed, _ = partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))
    return _count(needed)


def operations_per_row(model: Model, params: Params, row: tuple[Any, Any], rows: int = 10) -> float:
    """Operations of a gradient, for each row of a batch."""
    x, y = (jax.ShapeDtypeStruct((rows, *part.shape), part.dtype) for part in row)
    mask = jax.ShapeDtypeStruct((rows,), np.float32)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
    return (
        count_operations(lambda p, x, y, m: model.gradient(p, Batch(x, y, m), jax.random.key(0)), shapes, x, y, mask)
        / rows
    )


def operations_of_training(algorithm: Algorithm, model: Model, task: Task) -> float:
    """Operations of a gradient, for each row, of what sites train: of the largest part, where they are sent parts."""
    params = jax.eval_shape(model.init, jax.random.key(0))
    server = jax.eval_shape(lambda given: algorithm.init(given, 1), params)

    def of_kind(kind: int) -> float:
        sent = jax.eval_shape(lambda given: plain_message(algorithm, given, kind), server).arrays.get("params")
        is_model = isinstance(sent, dict) and sent.keys() == params.keys()
        return operations_per_row(model, sent if is_model else params, row_of(task))

    return max(of_kind(kind) for kind in range(algorithm.tailoring.kinds if algorithm.tailoring else 1))


def _count(jaxpr: Any) -> int:
    total = 0
    for step in jaxpr.eqns:
        times = int(step.params["length"]) if step.primitive.name == "scan" else 1
        if step.primitive.name == "conv_general_dilated":
            # Every number of the output is a sum over a window and the channels of its group.
            kernel, places = step.invars[1].aval.shape, step.params["dimension_numbers"].rhs_spec
            window = int(np.prod(kernel)) // int(kernel[places[0]])
            total += 2 * window * int(np.prod(step.outvars[0].aval.shape))
        # Convolutions of the models here, and their slopes, say it themselves.
        total += getattr(step.params.get("geometry"), "operations", 0)
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
