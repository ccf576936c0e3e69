"""Shakespeare's roles: rows are real text, and no test character was trained on."""

import numpy as np
import pytest

from wardround.data.datasets.leaf.leaf_files import LETTERS
from wardround.data.datasets.leaf.shakespeare_roles import shakespeare_roles
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "shakespeare_roles").is_dir(), reason="the folder shakespeare_roles is not in WARDROUND_DATA"
)


def test_rows_are_text_and_the_character_that_follows():
    data = shakespeare_roles(length=20, step=1, roles=5)
    assert len(data.sites) <= 5
    first = int(data.first[0])
    line = "".join(LETTERS[code] for code in data.x[first])
    assert line.isprintable() or "\n" in line
    # Rows follow each other by one character, so a row's label is the last character of the next.
    train = int(data.counts[0, 0])
    np.testing.assert_array_equal(data.y[first : first + train - 1], data.x[first + 1 : first + train, -1])
    np.testing.assert_array_equal(data.x[first + 1 : first + train, :-1], data.x[first : first + train - 1, 1:])


def test_all_roles():
    data = shakespeare_roles(step=20)
    assert 200 < len(data.sites) < 299
    assert data.counts[:, 1].sum() == 0
    share = data.counts[:, 2].sum() / data.counts.sum()
    assert 0.15 < share < 0.25
