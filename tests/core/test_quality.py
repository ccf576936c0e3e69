"""Sums of losses, rows and right answers: by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from wardround.core.quality import Quality, quality_of, row_figures, row_losses


def test_means_are_weighted_by_rows():
    """Three rows with loss 1.5 in all, one row with 0.7: (1.5 + 0.7) / 4; 2 + 0 of 4 right."""
    told = quality_of({"bo": (1.5, 3, 2), "empty": (0.0, 0, 0), "kenema": (0.7, 1, 0)}, classes=True)
    assert told.sites == ("bo", "kenema")
    assert told.mean_loss == pytest.approx(0.55)
    assert told.mean_losses() == pytest.approx({"bo": 0.5, "kenema": 0.7})
    assert told.accuracy == 0.5
    assert quality_of({"bo": (1.5, 3, 0)}, classes=False).accuracy is None


def test_nobody_told_anything():
    nothing = quality_of({"bo": (0.0, 0, 0)}, classes=True)
    assert np.isnan(nothing.mean_loss)
    assert (nothing.accuracy, nothing.mean_losses()) == (None, {})


@pytest.mark.parametrize("numpy", [np, jnp])
def test_losses_by_hand(numpy):
    """-ln 0.25, -ln of the smallest probability that is believed, and no number at all."""
    predicted = numpy.asarray([[0.75, 0.25], [1.0, 0.0], [np.nan, np.nan]])
    found = row_losses(predicted, numpy.asarray([1, 1, 0]))
    np.testing.assert_allclose(found, [np.log(4), 7 * np.log(10), np.inf], rtol=1e-6)
    np.testing.assert_allclose(row_losses(numpy.asarray([1.0, 5.0]), numpy.asarray([0.5, 2.0])), [0.25, 9.0])


def test_double_precision_is_kept():
    assert row_losses(np.array([[0.1, 0.9]]), np.array([1])).dtype == np.float64


def test_right_answers():
    loss, right = row_figures(np.array([[0.6, 0.4], [0.2, 0.8]], np.float32), np.array([0, 0]))
    assert right.tolist() == [True, False]
    assert row_figures(np.array([1.0], np.float32), np.array([1.0]))[1].tolist() == [False]
    assert loss.shape == (2,)


def test_it_is_frozen():
    with pytest.raises(AttributeError):
        quality_of({}, classes=False).sites = ("bo",)  # type: ignore[misc]
    assert isinstance(quality_of({}, classes=False), Quality)
