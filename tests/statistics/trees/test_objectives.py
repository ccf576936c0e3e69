import numpy as np
import pytest

from wardround.statistics.trees.objectives import logistic, softmax, squared


@pytest.mark.parametrize("made", [logistic(), softmax(3), squared()], ids=lambda made: made.name)
def test_slopes_are_the_derivatives_of_the_loss(made):
    # Central differences in double precision; the second derivative of one score by itself.
    draw = np.random.default_rng(1)
    score = draw.normal(0, 2, (made.groups, 8))
    y = draw.normal(size=8) if made.name == "squared" else draw.integers(0, max(2, made.groups), 8).astype(float)
    slopes = made.slopes(score, y)
    for group in range(made.groups):
        step = np.zeros_like(score)
        step[group] = 1e-4
        up, down, here = (made.loss(at, y) for at in (score + step, score - step, score))
        np.testing.assert_allclose(slopes.gradients[group], (up - down) / 2e-4, atol=1e-6)
        np.testing.assert_allclose(slopes.hessians[group], (up - 2 * here + down) / 1e-8, atol=1e-5)


@pytest.mark.parametrize("made", [logistic(), softmax(4)], ids=lambda made: made.name)
def test_no_row_is_steeper_or_reaches_farther_than_is_said(made):
    draw = np.random.default_rng(2)
    score = draw.normal(0, 4, (made.groups, 4000))
    slopes = made.slopes(score, draw.integers(0, max(2, made.groups), 4000).astype(float))
    assert slopes.hessians.max() <= made.steepest
    reached = (slopes.gradients**2 + (slopes.hessians / made.steepest) ** 2).sum(axis=0)
    assert reached.max() <= made.reach


def test_the_first_score_is_that_of_all_patients():
    # 30 of 100: log(30.5 / 70.5); half a patient more in either class keeps it finite.
    made = logistic()
    np.testing.assert_allclose(made.first_score(made.summarise(np.repeat([0.0, 1.0], [70, 30]))), np.log(30.5 / 70.5))
    np.testing.assert_allclose(squared().first_score(squared().summarise(np.array([1.0, 2.0, 6.0]))), 3.0)
    np.testing.assert_allclose(softmax(2).outcome(np.array([[0.0], [np.log(3)]])), [[0.25, 0.75]])
