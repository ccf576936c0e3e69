"""Arithmetic on nests of arrays, with the numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.core import trees
from wardround.core.contracts import Tree

A: Tree = {"w": jnp.array([1.0, -2.0]), "deep": (jnp.array(3.0), {"b": jnp.array([[4.0]])})}
B: Tree = {"w": jnp.array([10.0, 20.0]), "deep": (jnp.array(30.0), {"b": jnp.array([[40.0]])})}


def plain(tree: Tree) -> list[object]:
    """Leaves in the order of their names: deep[0], deep[1]/b, w."""
    return [leaf.tolist() for leaf in jax.tree.leaves(tree)]


def test_sums_differences_multiples_and_zeros() -> None:
    assert plain(trees.add(A, B)) == [33.0, [[44.0]], [11.0, 18.0]]
    assert plain(trees.subtract(A, B)) == [-27.0, [[-36.0]], [-9.0, -22.0]]
    assert plain(trees.scale(A, -0.5)) == [-1.5, [[-2.0]], [-0.5, 1.0]]
    assert plain(trees.scale(A, jnp.float32(2))) == [6.0, [[8.0]], [2.0, -4.0]]
    assert plain(trees.zeros(A)) == [0.0, [[0.0]], [0.0, 0.0]]


def test_trees_of_other_structure_are_not_added() -> None:
    with pytest.raises(ValueError, match=r"structure|arity|Dict key mismatch"):
        trees.add(A, {"w": A["w"]})


def test_choose_takes_one_whole_tree_and_the_other_may_be_nan() -> None:
    spoilt = trees.scale(A, float("nan"))
    assert plain(trees.choose(jnp.array(True), A, spoilt)) == plain(A)
    assert plain(trees.choose(jnp.array(False), spoilt, B)) == plain(B)


def test_squared_norm_by_hand() -> None:
    assert float(trees.squared_norm(A)) == 1 + 4 + 9 + 16
    assert float(trees.squared_norm(())) == 0


def test_division_by_nothing_is_nothing() -> None:
    assert plain(trees.divide_or_zero(A, jnp.float32(4))) == [0.75, [[1.0]], [0.25, -0.5]]
    assert plain(trees.divide_or_zero(A, jnp.float32(0))) == [0.0, [[0.0]], [0.0, 0.0]]
    # Also where the sum of no answers is itself broken, and in the gradient.
    assert plain(trees.divide_or_zero({"w": jnp.array(float("inf"))}, jnp.float32(0))) == [0.0]
    assert float(jax.grad(lambda by: trees.divide_or_zero(jnp.float32(1), by))(jnp.float32(0))) == 0.0


def test_a_copy_has_buffers_of_its_own() -> None:
    copied = trees.copy(A)
    assert plain(copied) == plain(A)
    for one, other in zip(jax.tree.leaves(copied), jax.tree.leaves(A), strict=True):
        assert one.unsafe_buffer_pointer() != other.unsafe_buffer_pointer()


def test_bytes_of_real_and_of_abstract_arrays() -> None:
    tree = {"w": jnp.zeros((3, 2)), "n": jnp.int32(1), "image": np.zeros((5, 5), np.uint8)}
    # 6 floats and one integer of 4 bytes, 25 bytes of image.
    assert trees.nbytes(tree) == 24 + 4 + 25
    assert trees.nbytes(jax.eval_shape(lambda: {"w": jnp.zeros((3, 2), jnp.float16)})) == 12
    assert trees.nbytes(()) == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_bad_number_anywhere_is_seen(bad: float) -> None:
    assert bool(trees.all_finite(A))
    assert bool(trees.all_finite(()))
    assert bool(trees.all_finite({"n": jnp.int32(3)}))
    broken = {**A, "w": jnp.array([1.0, bad])}
    assert not bool(trees.all_finite(broken))
    # Infinities of both signs make NaN, which is not finite either.
    assert not bool(trees.all_finite({**broken, "deep": (jnp.array(-bad),)}))
