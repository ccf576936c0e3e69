"""Digits by writer: the published counts, and that an image stays with its label and its writer."""

import numpy as np
import pytest

from wardround.core.federation import Federation
from wardround.data.datasets.mnist_writers import mnist_writers
from wardround.data.folder import data_file, data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "mnist_with_writers").is_dir(), reason="the folder mnist_with_writers is not in WARDROUND_DATA"
)


@pytest.fixture(scope="module")
def both() -> Federation:
    return mnist_writers(holdout="writers")


def test_without_new_writers_there_are_539(both: Federation) -> None:
    federation = mnist_writers()
    assert len(federation.sites) == 539
    assert federation.x.shape == (60_000, 28, 28, 1)
    assert federation.x.dtype == np.uint8
    totals = federation.counts.sum(axis=1)
    assert (totals.min(), totals.max(), np.median(totals)) == (19, 131, 116)
    assert np.array_equal(federation.counts[:, 1], np.round(totals / 10))
    assert np.array_equal(federation.counts[:, 1], federation.counts[:, 2])
    assert np.array_equal(both.x[:60_000], federation.x), "new writers come after the others, who stay as they were"


def test_new_writers_have_test_rows_only(both: Federation) -> None:
    assert len(both.sites) == len(set(both.sites)) == 539 + 297
    assert both.counts[539:, :2].sum() == 0
    assert both.counts[539:, 2].sum() == 10_000
    assert len(both.x) == both.counts.sum() == 70_000


def test_each_writers_images_keep_their_labels(both: Federation) -> None:
    with np.load(data_file("mnist_with_writers", "mnist_writers.npz")) as file:
        for part, sites in (("train", (0, 300)), ("test", (539, 835))):
            x, y, writer = (file[f"{name}_{part}"] for name in ("x", "y", "writer"))
            for site in sites:
                rows = slice(both.first[site], both.first[site] + both.counts[site].sum())
                mine = writer == int(both.sites[site].removeprefix("writer-"))
                held = sorted(
                    (int(label), image.tobytes()) for label, image in zip(both.y[rows], both.x[rows], strict=True)
                )
                assert held == sorted(
                    (int(label), image.tobytes()) for label, image in zip(y[mine], x[mine], strict=True)
                )
    assert both.task.classes == tuple("0123456789")


def test_another_seed_splits_a_writers_rows_differently() -> None:
    one, other = mnist_writers(seed=0), mnist_writers(seed=1)
    assert not np.array_equal(one.y[:100], other.y[:100])
