"""Holm's correction by hand."""

import numpy as np

from wardround.partners.similarity.multiple_tests import holm


def test_holm_by_hand():
    """Sorted 0.01, 0.02, 0.3 times 3, 2, 1, none below its predecessor; never above 1."""
    np.testing.assert_allclose(holm(np.array([0.02, 0.3, 0.01])), [0.04, 0.3, 0.03])
    np.testing.assert_allclose(holm(np.array([0.03, 0.02])), [0.04, 0.04])
    np.testing.assert_allclose(holm(np.array([0.7, 0.6])), [1.0, 1.0])
    assert holm(np.array([])).shape == (0,)
