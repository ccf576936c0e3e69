"""LEAF's synthetic set: sizes and labels follow from the printed rule."""

import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.data.datasets.leaf.leaf_synthetic import leaf_synthetic


def test_sizes_are_bounded_log_normal_numbers():
    rows = leaf_synthetic(devices=2000, features=3).counts.sum(axis=1)
    # n = min(m + 5, 1000) with log m ~ N(3, 2): the median of m is e^3 = 20.1, so that of n is 25; P(m > 995) =
    # P(z > (6.9 - 3) / 2 = 1.95) = 0.0256. Of 2,000 devices the sample median has a standard error of about 1.1.
    assert rows.min() >= 5
    assert rows.max() == 1000
    assert abs(np.median(rows) - 25) < 5
    assert abs((rows == 1000).mean() - 0.0256) < 4 * np.sqrt(0.0256 / 2000)


def test_every_device_has_a_linear_truth_of_its_own():
    data = leaf_synthetic(devices=100, features=4, classes=3)
    x, y, sizes = np.c_[data.x, np.ones(len(data.x))], np.eye(3)[data.y], data.counts.sum(axis=1)

    def right(rows, weights):
        return ((x[rows] @ weights).argmax(axis=1) == data.y[rows]).mean()

    common = np.linalg.lstsq(x, y, rcond=None)[0]
    pairs = []
    for first, many in zip(data.first, sizes, strict=True):
        if many >= 100:
            own = slice(first, first + many)
            pairs.append((right(own, np.linalg.lstsq(x[own], y[own], rcond=None)[0]), right(own, common)))
    alone, together = np.mean(pairs, axis=0)
    assert alone > 0.9
    assert alone > together + 0.1


def test_features_spread_as_said():
    data = leaf_synthetic(devices=300, features=5)
    first, sizes = data.first, data.counts.sum(axis=1)
    within = np.mean(
        [data.x[f : f + n].var(axis=0, ddof=1) for f, n in zip(first, sizes, strict=True) if n > 50], axis=0
    )
    np.testing.assert_allclose(within, np.arange(1, 6) ** -1.2, rtol=0.1)


def test_the_seed_decides_and_clusters_must_be_probabilities():
    one, two, other = (leaf_synthetic(devices=5, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.x, two.x)
    assert one.x.shape != other.x.shape or not np.array_equal(one.x, other.x)
    assert leaf_synthetic(devices=5, clusters=(0.5, 0.5)).counts.shape == (5, 3)
    with pytest.raises(Refusal, match="probabilities"):
        leaf_synthetic(clusters=(0.5, 0.6))
