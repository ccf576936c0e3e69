import numpy as np
import pytest

from wardround.statistics.trees.bins import Feature, layout_of
from wardround.statistics.trees.course import (
    BinnedRows,
    after_forest,
    after_levels,
    first_course,
    follows,
    node_sums,
    with_slopes,
)
from wardround.statistics.trees.forest import bare_forest, scores_of
from wardround.statistics.trees.growth import TreeShape, coarse, grow_level, seed_tree
from wardround.statistics.trees.objectives import logistic, squared
from wardround.statistics.trees.splits import Rules

LAYOUT = layout_of([Feature("x", np.arange(1.0, 8.0)), Feature("w", np.empty(0), ("a", "b", "c"), True)])
CATEGORY = np.array([False, True])


def rows(seed=0, many=300):
    draw = np.random.default_rng(seed)
    codes = np.stack([draw.integers(0, 8, many), draw.integers(0, 3, many)]).astype(np.uint8)
    codes[0, draw.random(many) < 0.1] = LAYOUT.width - 1
    y = (draw.random(many) < 0.2 + 0.08 * np.minimum(codes[0], 7) * (codes[1] == 1)).astype(np.float32)
    return BinnedRows(codes, y)


def grow(course, objective, shape, both=False):
    shape = shape._replace(both=both)
    many = course.rows.codes.shape[1]
    growth = seed_tree(shape, np.arange(2))
    course = with_slopes(course, objective, many, LAYOUT.width, np.arange(2))
    while not growth.done:
        course = after_levels(course, growth.tree, growth.level, LAYOUT.width)
        growth = grow_level(growth, shape, node_sums(course, growth.asked, many, None, LAYOUT.used))
    return growth.tree, course


SHAPE = TreeShape(1, 3, LAYOUT, CATEGORY, np.zeros(2), Rules(1.0, 2.0), 0.3)


def test_a_stump_by_hand():
    # Squared error, lambda 0, rate 1: the two leaves are the means of the rows below and from bin 4 on.
    codes = np.zeros((2, 8), np.uint8)
    codes[0] = [0, 1, 2, 3, 4, 5, 6, 7]
    y = np.array([1.0, 1.0, 2.0, 2.0, 10.0, 10.0, 11.0, 13.0], np.float32)
    course = first_course(BinnedRows(codes, y), np.zeros(1), bare_forest(0, 1, 1, LAYOUT.width))
    tree, _ = grow(course, squared(), SHAPE._replace(depth=1, rules=Rules(0.0, 1.0), rate=1.0))
    assert tree.column[0, 0].tolist() == [0]
    assert tree.value[0, 0].tolist() == [1.5, 11.0]


def test_what_the_sibling_leaves_gives_the_same_tree_as_asking_for_both():
    course = first_course(rows(), np.zeros(1), bare_forest(0, 1, 3, LAYOUT.width))
    one, _ = grow(course, logistic(), SHAPE)
    other, _ = grow(course, logistic(), SHAPE, both=True)
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_scores_that_are_kept_are_those_worked_out_afresh():
    course = first_course(rows(), np.array([-0.3]), bare_forest(0, 1, 3, LAYOUT.width))
    for _ in range(3):
        tree, course = grow(course, logistic(), SHAPE)
        course = after_forest(course, course.forest.plus(tree), LAYOUT.width)
    afresh = scores_of(course.forest, np.array([-0.3]), course.rows.codes, LAYOUT.width)
    np.testing.assert_array_equal(course.scores, afresh)
    # Another forest is not taken for this one's continuation.
    other = course.forest._replace(value=course.forest.value + 1)
    assert follows(course, course.forest)
    assert not follows(course, other)
    assert not follows(course, other.first(2))


def test_every_leaf_is_as_heavy_as_it_must_be():
    course = first_course(rows(many=2000), np.zeros(1), bare_forest(0, 1, 3, LAYOUT.width))
    tree, course = grow(course, logistic(), SHAPE._replace(rules=Rules(1.0, 12.5)))
    course = after_levels(course, tree, 3, LAYOUT.width)
    counts = np.bincount(course.at[0], minlength=8)
    # 12.5 = 50 / 4: a row's second derivative is a quarter at most, so a leaf holds 50 rows or more.
    assert counts[counts > 0].min() >= 50
    assert (counts > 0).sum() > 2


def test_no_sums_are_asked_of_nodes_that_cannot_be_split():
    shape = SHAPE._replace(rules=Rules(1.0, 30.0))
    course = first_course(rows(many=400), np.zeros(1), bare_forest(0, 1, 3, LAYOUT.width))
    growth = seed_tree(shape, np.arange(2))
    course = with_slopes(course, logistic(), 400, LAYOUT.width, np.arange(2))
    while not growth.done:
        course = after_levels(course, growth.tree, growth.level, LAYOUT.width)
        sums = node_sums(course, growth.asked, 400, None, LAYOUT.used)
        # Each column holds a node's rows once: two leaves of 30 need 60 of second derivatives.
        weight = sums[1, 0, :, : LAYOUT.used[0].sum()].sum(axis=-1)
        assert weight.min() >= 60
        growth = grow_level(growth, shape, sums)


@pytest.mark.parametrize("value", [0.123456789, -3.7, 0.0, 1e-5])
def test_leaf_values_have_8_binary_digits(value):
    found = float(coarse(np.array([value]))[0])
    assert abs(found - value) <= abs(value) / 256
    if value:
        digits = found / 2.0 ** np.floor(np.log2(abs(found)))
        assert (digits * 128).is_integer()
