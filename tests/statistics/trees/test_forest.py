import numpy as np

from wardround.statistics.trees.forest import Forest, bare_forest, leaves_of, pack_bins, scores_of, unpack_bins


def tree_by_hand():
    """Column 0 below bin 2 goes left; there column 1 decides, levels 0 and 3 and what is unknown (4) left."""
    made = bare_forest(1, 1, 2, 5)
    made.column[0, 0] = [0, 1, -1]
    made.left[0, 0, 0] = pack_bins(np.array([1, 1, 0, 0, 0], bool))
    made.left[0, 0, 1] = pack_bins(np.array([1, 0, 0, 1, 1], bool))
    made.value[0, 0] = [1.0, 2.0, 4.0, 8.0]
    return made


def test_rows_end_in_the_leaves_by_hand():
    codes = np.array([[0, 1, 2, 4, 1], [0, 1, 0, 0, 4]], np.uint8)
    tree = tree_by_hand()
    leaves = leaves_of(tree.column[0, 0], unpack_bins(tree.left[0, 0], 5), codes)
    # A node that asks nothing sends all left: 2 and 4 of column 0 end in leaf 2.
    assert leaves.tolist() == [0, 1, 2, 2, 0]
    assert scores_of(tree, np.array([0.5]), codes, 5).tolist() == [[1.5, 2.5, 4.5, 4.5, 1.5]]


def test_a_forest_holds_no_counts_and_no_sums():
    assert Forest._fields == ("column", "left", "value")


def test_trees_add_up():
    codes = np.array([[0, 1, 2], [0, 1, 0]], np.uint8)
    one = tree_by_hand()
    twice = scores_of(one.plus(one), np.zeros(1), codes, 5)
    np.testing.assert_array_equal(twice, 2 * scores_of(one, np.zeros(1), codes, 5))
    assert one.plus(one).first(1).trees == 1
    assert one.depth == 2
