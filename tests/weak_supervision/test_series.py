import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.weak_supervision import series
from wardround.weak_supervision.series import is_within, read_series, squared_distances, z_normalised


def test_distances_are_those_of_a_loop(monkeypatch):
    generator = np.random.default_rng(0)
    rows, templates = generator.normal(size=(23, 7)), generator.normal(size=(5, 7))
    loop = np.array([[np.sum((one - other) ** 2) for other in templates] for one in rows])
    np.testing.assert_allclose(squared_distances(rows, templates), loop, atol=1e-12)
    reach = np.array([2.0, 3.0, 0.0, 4.0, -1.0])
    monkeypatch.setattr(series, "BLOCK", 15)  # three rows at a time
    assert np.array_equal(is_within(rows, templates, reach), np.sqrt(loop) <= reach)


def test_constant_series_and_gaps():
    # A constant series is 0 throughout, so its distance from a template of 4 samples with deviation 1 is sqrt(4) = 2.
    flat, template = z_normalised(np.full((1, 4), 7.0)), z_normalised(np.array([[1.0, 1.0, 3.0, 3.0]]))
    assert squared_distances(flat, template) == pytest.approx(4.0)
    gap = z_normalised(np.array([[1.0, np.nan, 3.0, 2.0]]))
    assert not is_within(gap, template, np.array([1e9])).any()


def test_series_of_other_lengths_are_refused():
    frame = pd.DataFrame({"beat0": [1.0], "beat1": [2.0], "beat2": [3.0]})
    assert read_series(frame, "beat", 3).tolist() == [[1.0, 2.0, 3.0]]
    with pytest.raises(Refusal, match="more than 2 samples"):
        read_series(frame, "beat", 2)
    with pytest.raises(Refusal, match="fewer than 4 samples here: column 'beat3' is missing"):
        read_series(frame, "beat", 4)
