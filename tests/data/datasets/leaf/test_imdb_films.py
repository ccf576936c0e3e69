"""Film reviews by film."""

import numpy as np
import pytest

from wardround.data.datasets.leaf.imdb_films import imdb_films
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "imdb_reviews").is_dir(), reason="the folder imdb_reviews is not in WARDROUND_DATA"
)


def test_films_are_clients_with_reviews_enough():
    data = imdb_films(words=32, fewest=10)
    sizes = data.counts.sum(axis=1)
    assert sizes.min() >= 10
    assert set(np.unique(data.x)) == {0, 1}
    assert set(np.unique(data.y)) == {0, 1}
    assert (data.counts[:, 0] >= data.counts[:, 2]).all()
    assert len(imdb_films(words=32, fewest=20).sites) < len(sizes)
