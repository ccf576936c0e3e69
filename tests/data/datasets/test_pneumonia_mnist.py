"""Chest X-rays: the official counts in every part, whole or skewed."""

import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.data.datasets.pneumonia_mnist import pneumonia_mnist
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "pneumoniamnist").is_dir(), reason="the folder pneumoniamnist is not in WARDROUND_DATA"
)


def ill_share(federation: Federation, part: str) -> np.ndarray:
    first, count = federation.part(part)
    return np.array([federation.y[a : a + n].mean() for a, n in zip(first, count, strict=True)])


def test_the_official_parts_are_kept() -> None:
    for federation in (pneumonia_mnist(), pneumonia_mnist(alpha=0.5)):
        for part, counts in (("train", [1_214, 3_494]), ("validation", [135, 389]), ("test", [234, 390])):
            assert np.bincount(federation.y[federation.rows_of(part)]).tolist() == counts
        assert federation.x.shape == (5_856, 28, 28, 1)
        assert federation.x.dtype == np.uint8


def test_without_skew_all_sites_are_alike() -> None:
    federation = pneumonia_mnist(sites=3)
    assert federation.counts[:, 0].max() - federation.counts[:, 0].min() <= 2
    assert np.ptp(ill_share(federation, "train")) < 0.002


def test_a_small_alpha_skews_and_the_test_images_follow_the_training_images() -> None:
    federation = pneumonia_mnist(sites=3, alpha=0.5)
    normal = [
        np.array([(federation.y[a : a + n] == 0).sum() for a, n in zip(*federation.part(part), strict=True)])
        for part in ("train", "test")
    ]
    assert np.ptp(ill_share(federation, "train")) > 0.05
    np.testing.assert_allclose(normal[0] / 1_214, normal[1] / 234, atol=0.006)


def test_more_sites_than_images_is_refused() -> None:
    with pytest.raises(Refusal, match="sites would get no rows"):
        pneumonia_mnist(sites=6_000)
