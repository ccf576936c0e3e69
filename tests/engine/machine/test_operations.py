"""Operations counted by tracing equal those counted by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.federated_dropout import federated_dropout
from wardround.core.contracts import Task
from wardround.engine.machine.operations import count_operations, operations_of_training, operations_per_row
from wardround.models.logistic import logistic
from wardround.models.lstm import lstm
from wardround.models.mlp import mlp


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


def test_convolutions_by_hand():
    # 6 x 5 places, 7 filters, windows of 3 x 3 x 4; with two groups a filter sees half of the channels.
    for groups in (1, 2):
        x, kernel = jnp.zeros((2, 6, 5, 4)), jnp.zeros((3, 3, 4 // groups, 8))

        def convolve(x, kernel, groups=groups):
            numbers = ("NHWC", "HWIO", "NHWC")
            return jax.lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups
            )

        assert count_operations(convolve, x, kernel) == 2 * (2 * 6 * 5 * 8) * (3 * 3 * 4 // groups)


def test_a_part_of_the_model_takes_fewer():
    # 6 inputs, 8 units, 5 classes. Forward and the weights' gradients 2 * 2 * (6 u + 5 u), back to the units 2 * 5 u.
    task = Task((6,), tuple("abcde"))
    model = mlp(task, hidden=(8,))
    for width, units in ((1.0, 8), (0.5, 4)):
        algorithm = federated_dropout(model, weighted_mean(), width=width)
        assert operations_of_training(algorithm, model, task) == 54 * units
    # Sites with parts of several widths: the widest counts, so that a budget holds.
    mixed = federated_dropout(model, weighted_mean(), width=0.25, widths=(0.5, None))
    assert operations_of_training(mixed, model, task) == 54 * 4
    assert operations_of_training(fed_avg(model, weighted_mean()), model, task) == 54 * 8
