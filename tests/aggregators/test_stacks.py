import jax.numpy as jnp
import numpy as np

from wardround.aggregators.stacks import FAR, close_stack, distances_to, open_stack
from wardround.core.contracts import Message


def test_answers_are_divided_by_their_weight_and_put_back_in_their_shapes() -> None:
    message = Message(
        {
            "update": {"a": jnp.array([[[2.0, 4.0]], [[9.0, 12.0]]]), "b": jnp.array([6.0, 3.0])},
            "weight": jnp.array([2.0, 3.0]),
        }
    )
    stack = open_stack(message)
    np.testing.assert_array_equal(stack.values, [[1.0, 2.0, 3.0], [3.0, 4.0, 1.0]])
    combined = close_stack(message, stack, stack.values[1]).arrays
    np.testing.assert_array_equal(combined["update"]["a"], [[3.0, 4.0]])
    assert combined["update"]["b"].shape == ()
    assert float(combined["update"]["b"]) == 1.0
    assert float(combined["weight"]) == 5.0


def test_rows_without_a_usable_weight_or_number_do_not_count() -> None:
    weights = jnp.array([1.0, 0.0, -1.0, jnp.nan, jnp.inf, 1.0])
    stack = open_stack(
        Message({"update": jnp.array([[5.0], [1.0], [1.0], [1.0], [1.0], [jnp.nan]]), "weight": weights})
    )
    np.testing.assert_array_equal(stack.present, [True, False, False, False, False, False])
    np.testing.assert_array_equal(stack.weights, [1.0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(stack.values[:, 0], [5.0, 0, 0, 0, 0, 0])
    assert int(stack.sites) == 1


def test_distances_stay_finite_for_the_largest_entries() -> None:
    stack = open_stack(Message({"update": jnp.array([[3.0, 4.0], [3e38, 0.0]]), "weight": jnp.ones(2)}))
    np.testing.assert_allclose(distances_to(stack, jnp.zeros(2)), [5.0, FAR], rtol=1e-6)


def test_integers_come_back_as_numbers_with_a_fraction() -> None:
    message = Message({"count": jnp.array([[1], [2]]), "weight": jnp.array([1.0, 1.0])})
    combined = close_stack(message, open_stack(message), jnp.array([1.5]))
    assert combined.arrays["count"].dtype == jnp.float32
    assert float(combined.arrays["count"][0]) == 1.5
