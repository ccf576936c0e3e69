"""Dirichlet label skew: the proportions have the moments of the Dirichlet distribution, and the limits hold."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.partitions.by_label_dirichlet import by_label_dirichlet

FEATURES = pd.DataFrame({"x": np.arange(4000)})
LABELS = pd.Series(np.array(["a", "b", "c", "d"])[np.arange(4000) % 4], name="y")


def table(alpha: float, seed: int = 0, sites: int = 5) -> np.ndarray:
    """Rows of each class at each site, shape (classes, sites)."""
    parts = by_label_dirichlet(sites=sites, alpha=alpha).split(FEATURES, LABELS, np.random.default_rng(seed))
    assert sorted(np.concatenate(parts).tolist()) == list(range(4000))
    return np.array([[(LABELS.iloc[part] == label).sum() for part in parts] for label in "abcd"])


def test_a_huge_alpha_is_iid() -> None:
    # The share has the standard deviation sqrt(0.2 · 0.8 / (5e6 + 1)): none of 1,000 rows.
    assert np.abs(table(1e6) - 200).max() <= 1


def test_a_tiny_alpha_gives_each_class_to_hardly_more_than_one_site() -> None:
    assert (table(0.01, sites=2).max(axis=1) / 1000).min() > 0.95


def test_the_shares_have_the_variance_of_the_dirichlet_distribution() -> None:
    # Var = (1/K)(1 - 1/K) / (K alpha + 1) with K = 5, alpha = 2: 0.16 / 11. Over 100 draws of 4 classes and 5 sites the
    # estimate is within a tenth or so. (Redrawing for empty sites all but never happens at this alpha.)
    shares = np.stack([table(2.0, seed) for seed in range(100)]) / 1000
    assert shares.var() == pytest.approx(0.16 / 11, rel=0.12)


def test_skew_falls_as_alpha_grows() -> None:
    skew = [np.mean([table(alpha, seed).std() for seed in range(20)]) for alpha in (0.1, 1.0, 10.0, 100.0)]
    assert skew == sorted(skew, reverse=True)


def test_every_site_has_at_least_the_least_rows() -> None:
    for seed in range(10):
        parts = by_label_dirichlet(sites=10, alpha=0.2, least=50).split(FEATURES, LABELS, np.random.default_rng(seed))
        assert min(len(part) for part in parts) >= 50


def test_the_impossible_is_refused() -> None:
    with pytest.raises(Refusal, match="4000 rows could not be shared out so that each of 5 sites has at least 900"):
        by_label_dirichlet(sites=5, least=900).split(FEATURES, LABELS, np.random.default_rng(0))
    with pytest.raises(Refusal, match="each of 50 sites"):
        by_label_dirichlet(sites=50, alpha=0.001).split(FEATURES, LABELS, np.random.default_rng(0))
