from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.aggregators.class_weighted import class_weighted, find_last_layer
from wardround.core.contracts import Message
from wardround.core.errors import Refusal

Matrix = np.ndarray[Any, Any]

# Site A has 8 and 2 patients of the two classes, site B 2 and 28. a_A0 = 8/10, a_A1 = 2/30, a_B0 = 2/10, a_B1 = 28/30;
# a_A = (0.8 + 1/15) / 2 = 13/30, a_B = 17/30. The weighted mean has 1/4 and 3/4.
COUNTS = np.array([[8.0, 2.0], [2.0, 28.0]])
PARAMS = {"dense_0/kernel": (5, 3), "dense_0/bias": (3,), "dense_1/kernel": (3, 2), "dense_1/bias": (2,)}


def answers(counts: Matrix, seed: int = 0, scale: float = 1.0) -> tuple[Message, dict[str, Matrix]]:
    """Answers weighted by patients, and the updates in them without the weight."""
    random, sites = np.random.default_rng(seed), len(counts)
    weight = counts.sum(axis=1)
    updates = {name: random.normal(size=(sites, *shape)) for name, shape in PARAMS.items()}
    sent: dict[str, Any] = {name: weight.reshape(-1, *[1] * (u.ndim - 1)) * u for name, u in updates.items()}
    arrays = {"update": sent, "class_shares": counts * scale, "weight": weight}
    return jax.tree.map(np.float32, Message(arrays)), updates


def combined(message: Message, **parameters: Any) -> dict[str, Any]:
    return jax.jit(class_weighted(**parameters).reduce)((), message)[0].arrays


def test_two_sites_by_hand_one_weight_a_site() -> None:
    message, updates = answers(COUNTS)
    result = combined(message)
    for name, update in updates.items():
        expected = 13 / 30 * update[0] + 17 / 30 * update[1]
        np.testing.assert_allclose(result["update"][name], expected, rtol=1e-5, atol=1e-6)
    assert float(result["weight"]) == 40.0
    np.testing.assert_allclose(result["class_shares"], [10 / 40, 30 / 40], rtol=1e-6)


def test_two_sites_by_hand_one_weight_a_class_in_the_last_layer() -> None:
    message, updates = answers(COUNTS)
    result = combined(message, strategy="layer")["update"]
    by_class = np.array([[0.8, 2 / 30], [0.2, 28 / 30]])
    for name in ("dense_1/kernel", "dense_1/bias"):
        expected = by_class[0] * updates[name][0] + by_class[1] * updates[name][1]
        np.testing.assert_allclose(result[name], expected, rtol=1e-5, atol=1e-6)
    lower = updates["dense_0/kernel"]
    np.testing.assert_allclose(result["dense_0/kernel"], 13 / 30 * lower[0] + 17 / 30 * lower[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strategy", ["model", "layer"])
def test_the_same_mix_everywhere_is_the_weighted_mean(strategy: str) -> None:
    sizes = np.array([10.0, 40.0, 50.0])
    message, updates = answers(sizes[:, None] * np.array([0.2, 0.8]))
    result = combined(message, strategy=strategy)["update"]
    for name, update in updates.items():
        np.testing.assert_allclose(result[name], np.average(update, axis=0, weights=sizes), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strategy", ["model", "layer"])
def test_shares_may_be_scaled_on_their_way(strategy: str) -> None:
    # A transform that clips an answer scales its shares as well; only their proportions are used.
    whole, clipped = (combined(answers(COUNTS, scale=scale)[0], strategy=strategy) for scale in (1.0, 0.01))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), whole["update"], clipped["update"]
    )


@pytest.mark.parametrize("strategy", ["model", "layer"])
def test_empty_seats_do_not_count_and_a_class_nobody_holds_is_averaged_as_the_rest(strategy: str) -> None:
    message, updates = answers(np.array([[6.0, 0.0], [2.0, 0.0], [5.0, 5.0]]))
    empty = np.array([False, False, True])
    message = jax.tree.map(
        lambda a: np.where(empty.reshape(-1, *[1] * (a.ndim - 1)), np.float32(np.nan if a.ndim > 1 else 0.0), a),
        message,
    )
    result = combined(message, strategy=strategy)["update"]
    for name, update in updates.items():
        np.testing.assert_allclose(result[name], 0.75 * update[0] + 0.25 * update[1], rtol=1e-5, atol=1e-6)


def test_nobody_there_gives_zeros() -> None:
    result = combined(jax.tree.map(np.zeros_like, answers(COUNTS)[0]), strategy="layer")
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(result))


def test_the_last_layer_is_found_in_both_layouts_or_named() -> None:
    flax = {"a/kernel": (4, 6), "a/bias": (6,), "b/kernel": (6, 3), "b/bias": (3,)}
    assert find_last_layer(flax, 3, "") == {"b/kernel": 1, "b/bias": 0}
    torch = {"a.weight": (6, 3), "a.bias": (6,), "b.weight": (3, 6), "b.bias": (3,)}
    assert find_last_layer(torch, 3, "") == {"b.weight": 0, "b.bias": 0}
    square = {"a/kernel": (4, 3), "a/bias": (3,), "b/kernel": (3, 3), "b/bias": (3,)}
    assert find_last_layer(square, 3, "b") == {"b/kernel": 1, "b/bias": 0}
    assert find_last_layer({"kernel": (9, 2), "bias": (2,)}, 2, "") == {"kernel": 1, "bias": 0}
    with pytest.raises(Refusal, match=r"several: a, b.*name one of the layers a, b"):
        find_last_layer(square, 3, "")
    with pytest.raises(Refusal, match="found none"):
        find_last_layer(flax, 5, "")
    with pytest.raises(Refusal, match="last_layer 'c'"):
        find_last_layer(flax, 3, "c")


def test_answers_without_class_shares_are_refused() -> None:
    assert class_weighted().needs == ("class_shares",)
    with pytest.raises(Refusal, match="do not contain their class shares"):
        combined(Message({"update": jnp.ones((2, 3)), "weight": jnp.ones(2)}))
