import numpy as np
from sklearn.metrics import roc_auc_score

from wardround.statistics.trees.quality import CELLS, area_of_counts, area_of_scores, score_cells


def test_the_area_is_that_of_scikit_learn_also_with_ties():
    draw = np.random.default_rng(0)
    label = draw.integers(0, 2, 500)
    score = np.round(draw.normal(label, 1.5), 1)
    np.testing.assert_allclose(area_of_scores(score, label).value, roc_auc_score(label, score), rtol=1e-12)


def test_cells_of_scores_lose_next_to_nothing():
    draw = np.random.default_rng(1)
    label = draw.integers(0, 2, 4000)
    chance = 1 / (1 + np.exp(-draw.normal(2 * label - 1, 2)))
    cells = score_cells(chance)
    counts = [np.bincount(cells[label == side], minlength=CELLS) for side in (1, 0)]
    assert abs(area_of_counts(*counts).value - roc_auc_score(label, chance)) < 1e-4


def test_the_error_covers_as_often_as_it_says():
    # 400 samples of 60 and 60 from two normals a standard deviation apart: the true area is Phi(1 / sqrt(2)) = 0.7602.
    draw, inside = np.random.default_rng(2), 0
    label = np.repeat([0, 1], 60)
    for _ in range(400):
        low, high = area_of_scores(draw.normal(label, 1.0), label).interval
        inside += low <= 0.76025 <= high
    assert 0.92 <= inside / 400 <= 0.975


def test_one_class_has_no_area():
    assert np.isnan(area_of_counts(np.array([1, 2]), np.zeros(2)).value)
