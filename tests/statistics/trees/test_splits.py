import itertools

import numpy as np
import pytest

from wardround.statistics.trees.splits import Nodes, Rules, best_splits


def one_node(gradients, hessians, bounds=(-np.inf, np.inf)):
    """A node from (columns, width) sums; every column holds all rows."""
    total = np.array([gradients[0].sum()]), np.array([hessians[0].sum()])
    return Nodes(*total, *(np.array([bound]) for bound in bounds), np.zeros(1))


def split_of(gradients, hessians, *, category=False, rules=None, direction=0, bounds=(-np.inf, np.inf)):
    gradients, hessians = (np.atleast_2d(np.asarray(part, float)) for part in (gradients, hessians))
    columns = len(gradients)
    return best_splits(
        np.stack([gradients, hessians])[:, None],
        one_node(gradients, hessians, bounds),
        np.full(columns, category),
        np.ones(gradients.shape, bool),
        rules or Rules(l2=1.0, least=1.0),
        np.full(columns, direction),
    )


def test_gain_and_children_by_hand():
    # Bins with gradients 6, -2, -2, no missing values, hessians 3, 1, 1 and lambda 1: the best cut is after the first,
    # with a gain of (36 / 4 + 16 / 3 - 4 / 6) / 2 = 6.8333.
    found = split_of([6, -2, -2, 0], [3, 1, 1, 0])
    assert found.column.tolist() == [0]
    assert found.left[0].tolist()[:3] == [True, False, False]
    np.testing.assert_allclose(found.gain, (36 / 4 + 16 / 3 - 4 / 6) / 2)
    np.testing.assert_allclose(found.children.gradient, [[6, -4]])
    np.testing.assert_allclose(found.children.hessian, [[3, 2]])


@pytest.mark.parametrize("missing", [5.0, -5.0])
def test_missing_values_go_where_they_help(missing):
    # Low bins have positive gradients: gaps with a positive one belong to them, gaps with a negative one to the others.
    found = split_of([4, 3, -4, -3, missing], [2, 2, 2, 2, 2])
    assert bool(found.left[0, -1]) == (missing > 0)


def test_gaps_alone_may_make_a_split():
    found = split_of([1, 1, 1, -9], [2, 2, 2, 2])
    assert found.left[0].tolist() == [True, True, True, False]


def test_levels_are_grouped_as_well_as_by_trying_all_groups():
    draw = np.random.default_rng(3)
    for _ in range(20):
        gradients, hessians = draw.normal(0, 5, 6), draw.uniform(1, 4, 6)
        found = split_of(gradients, hessians, category=True, rules=Rules(l2=0.0, least=0.5))

        def gain(left, g=gradients, h=hessians):
            left = np.array(left, bool)
            parts = [(g[side].sum(), h[side].sum()) for side in (left, ~left)]
            return sum(one**2 / two for one, two in parts) / 2 - g.sum() ** 2 / h.sum() / 2

        best = max(gain(left) for left in itertools.product((0, 1), repeat=6) if 0 < sum(left) < 6)
        np.testing.assert_allclose(found.gain[0], best)
        np.testing.assert_allclose(gain(found.left[0]), best)


def test_a_level_lighter_than_a_leaf_stays_with_the_others():
    # By its slope the third level belongs to the second, but it has half a unit of weight. Alone on the left the
    # second gains (16 / 4 + 1 / 4.5 - 25 / 7.5) / 2.
    found = split_of([4, -4, -5, 0], [3, 3, 0.5, 0], category=True, rules=Rules(l2=1.0, least=1.0))
    assert found.left[0].tolist() == [False, True, False, False]
    np.testing.assert_allclose(found.gain, (16 / 4 + 1 / 4.5 - 25 / 7.5) / 2)


def test_no_split_where_children_would_be_too_light_or_the_gain_too_small():
    assert split_of([6, -6, 0], [3, 3, 0], rules=Rules(least=4.0)).column.tolist() == [-1]
    # (36 / 4 + 36 / 4) / 2 = 9
    assert split_of([6, -6, 0], [3, 3, 0], rules=Rules(least_gain=9.1)).column.tolist() == [-1]
    assert split_of([6, -6, 0], [3, 3, 0], rules=Rules(least_gain=8.9)).column.tolist() == [0]
    assert split_of([6, -6, 0], [3, 3, 0], rules=Rules(least=4.0)).left.all(), "a node that is not split goes left"


def test_a_monotone_column_never_turns_round():
    # Leaf values are -g / (h + 1): -1.5 on the left, +1.5 on the right: rising. So 'falling' allows none.
    assert split_of([6, -6, 0], [3, 3, 0], direction=1).column.tolist() == [0]
    assert split_of([6, -6, 0], [3, 3, 0], direction=-1).column.tolist() == [-1]
    # The children are bounded by the middle between them.
    children = split_of([6, -2, 0], [3, 3, 0], direction=1).children
    middle = (-1.5 + 0.5) / 2
    assert children.high.tolist() == [[middle, np.inf]]
    assert children.low.tolist() == [[-np.inf, middle]]


def test_bounds_of_a_parent_hold_for_its_children_on_any_column():
    # Unbounded the children would be worth -1.5 and 1.5; with at most 0 the right one is worth no more than 0,
    # and the gain is what the left one gives: 6 * 1.5 - 4 * 1.5^2 / 2 = 4.5.
    found = split_of([6, -6, 0], [3, 3, 0], bounds=(-np.inf, 0.0))
    np.testing.assert_allclose(found.gain, 4.5)
