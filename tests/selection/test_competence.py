import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.selection.competence import competence, cross_entropy, loss_nearby, own_difference, pick_other
from wardround.selection.neighbours import nearest


def test_competence_by_hand():
    # Losses 1, 3, 5 (own) and 1, 1, 1 (other). A patient whose two nearest are the last two: own (3 + 5) / 2 = 4, other
    # 1, so rho' = log(4.001 / 1.001) = 1.38554; whose nearest are the first two: own 2, log(2.001 / 1.001) = 0.69265.
    nearby = loss_nearby(np.array([[1.0, 3.0, 5.0], [1.0, 1.0, 1.0]]), np.array([[1, 2], [0, 1]]))
    np.testing.assert_allclose(nearby, [[4, 2], [1, 1]])
    np.testing.assert_allclose(competence(nearby), [[1.38554, 0.69265]], atol=1e-5)
    np.testing.assert_allclose(own_difference(np.array([[1.0, 3.0], [2.0, 1.0]])), [[-1, 2]])


def test_a_certain_mistake_has_a_finite_loss():
    # -log(1e-7) = 16.118, however sure the classifier was.
    np.testing.assert_allclose(cross_entropy(np.array([0.0, 1.0]), np.array([1, 0])), 16.11810, atol=1e-4)


def test_which_other_decides():
    # The first is the more competent at the first patient only; the second has the higher score at both.
    found, scores = np.array([[0.5, -0.2], [0.1, 0.3]]), np.array([[0.2, 0.4], [0.9, 0.8]])
    assert pick_other(found, scores, "competence").tolist() == [0, 1]
    assert pick_other(found, scores, "score").tolist() == [1, 1]


def test_nearest_agrees_with_all_distances():
    rng = np.random.default_rng(0)
    reference, queries = rng.normal(size=(200, 5)), rng.normal(size=(30, 5))
    squares = ((queries[:, None] - reference[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(nearest(reference, queries, 7), np.argsort(squares, axis=1)[:, :7])


def test_a_patient_is_no_neighbour_of_itself():
    # Three patients with two rows each on a line: the two nearest of others, by hand.
    x = np.array([[0.0], [0.1], [1.0], [1.1], [5.0], [5.1]])
    who = np.array([0, 0, 1, 1, 2, 2])
    found = nearest(x, x, 2, patients=(who, who))
    assert found.tolist() == [[2, 3], [2, 3], [1, 0], [1, 0], [3, 2], [3, 2]]


def test_too_few_patients_are_refused():
    with pytest.raises(Refusal, match="10 neighbours are asked for, and there are 4 patients"):
        nearest(np.zeros((4, 2)), np.zeros((1, 2)), 10, where="site A")
