"""Figures of a segmentation: one number an image, and its mean over the images of a site.

Dice and intersection over union are taken image by image, so that a large structure does not hide a small one that was
missed. An image in which there is nothing and nothing was found counts 1, one in which something was found that is not
there counts 0. Recall leaves images without the structure out, precision those in which nothing was found.
"""

import numpy as np

from wardround.core.overlap import DRAWN, FOUND, LOSS, SHARED, dice_of, union_share_of
from wardround.evaluate.rows import Numbers, Rows


def mean_of(rows: Rows, weights: Numbers | None, column: Numbers) -> Numbers:
    with np.errstate(invalid="ignore"):
        return np.asarray(rows.sums(weights, column[:, None])[:, :, 0] / rows.counts)


def mean_where(rows: Rows, weights: Numbers | None, part: Numbers, whole: Numbers) -> Numbers:
    """The mean share of the images whose whole is not 0; not a number where there are none."""
    there = whole > 0
    columns = np.stack([np.where(there, part / np.where(there, whole, 1.0), 0.0), there], axis=1)
    totals = rows.sums(weights, columns)
    with np.errstate(invalid="ignore"):
        return np.asarray(totals[:, :, 0] / totals[:, :, 1])


def dice(rows: Rows, weights: Numbers | None = None) -> Numbers:
    return mean_of(rows, weights, dice_of(rows.probabilities, rows.actual))


def iou(rows: Rows, weights: Numbers | None = None) -> Numbers:
    return mean_of(rows, weights, union_share_of(rows.probabilities, rows.actual))


def pixel_recall(rows: Rows, weights: Numbers | None = None) -> Numbers:
    return mean_where(rows, weights, rows.probabilities[:, SHARED], rows.actual[:, DRAWN])


def pixel_precision(rows: Rows, weights: Numbers | None = None) -> Numbers:
    return mean_where(rows, weights, rows.probabilities[:, SHARED], rows.probabilities[:, FOUND])


def pixel_log_loss(rows: Rows, weights: Numbers | None = None) -> Numbers:
    return mean_of(rows, weights, rows.probabilities[:, LOSS])


def no_structure(rows: Rows, site: int) -> str:
    return f"nothing to be found among {rows.patients(site)}"


def nothing_found(rows: Rows, site: int) -> str:
    return f"nothing found among {rows.patients(site)}"
