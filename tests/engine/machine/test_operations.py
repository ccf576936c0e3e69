"""Operations counted by tracing equal those counted by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.contracts import Task
from wardround.engine.machine.operations import count_operations, operations_per_row
from wardround.models.logistic import logistic
from wardround.models.lstm import lstm


def test_products_and_loops_by_hand():
    a, b = jnp.zeros((3, 4)), jnp.zeros((4, 5))
    # Every one of 3 x 5 results takes 4 products and 4 additions.
    assert count_operations(jnp.matmul, a, b) == 2 * 3 * 5 * 4

    def loop(a):
        return jax.lax.scan(lambda carry, _: (carry @ jnp.zeros((4, 4)), None), a, None, length=7)[0]

    assert count_operations(jax.jit(loop), a) == 7 * 2 * 3 * 4 * 4


def row(task):
    return jax.ShapeDtypeStruct(task.shape, np.float32), jax.ShapeDtypeStruct((), np.int32)


def test_a_gradient_of_networks_by_hand():
    # Logistic: forward 2 * 6 * 3 a row, backward the same for the weights; nothing flows on to the inputs.
    task = Task((6,), ("a", "b", "c"))
    model = logistic(task)
    assert operations_per_row(model, jax.eval_shape(model.init, jax.random.key(0)), row(task)) == 2 * 2 * 6 * 3
    # An LSTM takes its steps as often as there are tokens: doubled length, nearly doubled work. Before the first step
    # nothing was remembered, so nothing flows back beyond it.
    short, long = (
        operations_per_row(one, jax.eval_shape(one.init, jax.random.key(0)), row(own))
        for own in (Task((10,), tuple("abcd")), Task((20,), tuple("abcd")))
        for one in [lstm(own, hidden=(8,), embedding=3)]
    )
    assert 2.0 < long / short < 2.03
