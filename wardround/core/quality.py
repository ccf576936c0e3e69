"""What sites say about a model's quality: the same sums whether they are simulated here or are real hospitals.

Predictions and labels stay where they are. Three numbers a site are enough for a validation loss, for early stopping
and for an accuracy: how many rows, the sum of their losses, and how many were predicted rightly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

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
    """Rows whose most probable class is the right one; none for a regression."""
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


def quality_of(told: Mapping[str, tuple[float, int, int]], *, regression: bool) -> Quality:
    """From (loss, rows, right) of each site, as they came; sites that told of no row are left out.

    >>> quality_of({"bo": (1.5, 3, 2), "kenema": (0.0, 0, 0)}, regression=False).mean_losses()
    {'bo': 0.5}
    """
    some = {site: sums for site, sums in told.items() if sums[1] > 0}
    loss, rows, right = (np.array([sums[place] for sums in some.values()]) for place in range(3))
    return Quality(
        tuple(some), loss.astype(np.float64), rows.astype(np.int64), None if regression else right.astype(np.int64)
    )


def row_losses(predicted: Any, actual: Any) -> Any:
    """Minus the logarithm of the right class's probability, or the squared error of a regression; one a row.

    Infinite where the prediction is not a number, so that it never looks good. NumPy's arrays keep their precision.
    """
    numpy: Any = np if isinstance(predicted, np.ndarray) else jnp
    if predicted.ndim == 1:
        loss = numpy.square(predicted - actual)
    else:
        given = numpy.take_along_axis(predicted, actual[:, None].astype(numpy.int32), axis=1)[:, 0]
        loss = -numpy.log(numpy.clip(given, SMALLEST, 1.0))
    return numpy.where(numpy.isfinite(loss), loss, numpy.inf)


def row_figures(predicted: Numbers, actual: Numbers) -> tuple[Numbers, Numbers]:
    """The loss of every row, in double precision, and whether it was predicted rightly (never, for a regression)."""
    right = np.zeros(len(actual), bool) if predicted.ndim == 1 else predicted.argmax(axis=1) == actual
    return row_losses(np.asarray(predicted, np.float64), np.asarray(actual)), right
