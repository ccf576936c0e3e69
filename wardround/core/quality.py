"""What sites say about a model's quality: the same sums whether they are simulated here or are real hospitals.

Predictions and labels stay where they are. Three numbers a site are enough for a validation loss, for early stopping
and for an accuracy: how many rows, the sum of their losses, and how many were predicted rightly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from wardround.core.overlap import LOSS, pixel_losses

Numbers = np.ndarray[Any, Any]
SMALLEST = 1e-7
"""Probabilities are raised to this before the logarithm: about what single precision can tell from 0."""


@dataclass(frozen=True)
class Quality:
    """Sums over one part of the rows of every site that told of any; the arrays have a place for each of `sites`.

    A simulated site tells exactly. A real one tells in the cells of its policy: rows rounded down to whole cells, the
    loss of as many rows at a coarse mean, a coarse share of right answers; with a smallest cell of 1 it is exact too.
    """

    sites: tuple[str, ...]
    loss: Numbers
    """Sums of log losses, or of squared errors; infinite where a prediction is not a number."""
    rows: Numbers
    right: Numbers | None
    """Rows whose most probable class is the right one; none where no class is predicted."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Sites whose losses cannot be right and do not count, each with the reason."""
    implausible: Mapping[str, str] = field(default_factory=dict)
    """Sites whose losses count and are worth a look, each with the reason."""

    @property
    def mean_loss(self) -> float:
        """Over all rows of all sites; not a number where there are none."""
        return float(self.loss.sum() / self.rows.sum()) if len(self.sites) else float("nan")

    @property
    def accuracy(self) -> float | None:
        if self.right is None or not len(self.sites):
            return None
        return float(self.right.sum() / self.rows.sum())

    def mean_losses(self) -> dict[str, float]:
        """Site by site."""
        return dict(zip(self.sites, (self.loss / self.rows).tolist(), strict=True))


def quality_of(told: Mapping[str, tuple[float, int, int]], *, classes: bool) -> Quality:
    """From (loss, rows, right) of each site, as they came; sites that told of no row are left out.

    >>> quality_of({"bo": (1.5, 3, 2), "kenema": (0.0, 0, 0)}, classes=True).mean_losses()
    {'bo': 0.5}
    """
    some = {site: sums for site, sums in told.items() if sums[1] > 0}
    loss, rows, right = (np.array([sums[place] for sums in some.values()]) for place in range(3))
    return Quality(
        tuple(some), loss.astype(np.float64), rows.astype(np.int64), right.astype(np.int64) if classes else None
    )


def row_losses(predicted: Any, actual: Any) -> Any:
    """Minus the logarithm of the right class's probability, or the squared error of a regression; one a row.

    A label of (classes + k), as a censored patient has it, means class k or a later one. Of a segmentation the mean log
    loss of a pixel, from pictures or from their counts (see `core.overlap`). Infinite where the prediction is not a
    number, so that it never looks good. NumPy's arrays keep their precision.
    """
    numpy: Any = np if isinstance(predicted, np.ndarray) else jnp
    if predicted.ndim == 3:
        loss = pixel_losses(predicted, actual)
    elif actual.ndim == 2:
        loss = predicted[:, LOSS]
    elif predicted.ndim == 1:
        loss = numpy.square(predicted - actual)
    else:
        given = right_probability(numpy, predicted, actual.astype(numpy.int32))
        loss = -numpy.log(numpy.clip(given, SMALLEST, 1.0))
    return numpy.where(numpy.isfinite(loss), loss, numpy.inf)


def right_probability(numpy: Any, predicted: Any, actual: Any) -> Any:
    """The probability of what is known of each row: of its class, or of all classes from k on."""
    classes = predicted.shape[1]
    if numpy is np and not (len(actual) and actual.max() >= classes):
        return np.take_along_axis(predicted, actual[:, None], axis=1)[:, 0]
    own = numpy.arange(classes)
    first = actual[:, None] - numpy.where(actual >= classes, classes, 0)[:, None]
    possible = (own == first) | ((own > first) & (actual >= classes)[:, None])
    return numpy.where(possible, predicted, 0).sum(axis=1)


def has_classes(predicted: Numbers, actual: Numbers) -> bool:
    """Whether these are predictions of classes: neither values nor counts of pixels."""
    return predicted.ndim == 2 and actual.ndim == 1


def row_figures(predicted: Numbers, actual: Numbers) -> tuple[Numbers, Numbers]:
    """The loss of every row, in double precision, and whether its class was predicted rightly (never, without one)."""
    right = predicted.argmax(axis=1) == actual if has_classes(predicted, actual) else np.zeros(len(actual), bool)
    return row_losses(np.asarray(predicted, np.float64), np.asarray(actual)), right
