"""Pictures of a site's own test images for its own report: what was drawn by hand, and what the model marks.

They are made at the site, stand in the page that the site writes for itself, and are in no result, no message and no
log: no thumbnail ever leaves. Shown are images on which the model does worst, about as usual, and best.
"""

from io import BytesIO
from typing import Any

import numpy as np

from wardround.core.overlap import dice_of, union_share_of
from wardround.deploy.site.study_worker import StudyWorker
from wardround.engine.predictions import score_rows
from wardround.predict.predictor import Predictor
from wardround.report.clinical.case_pictures import CasePicture

SHOWN = 3
"""Of the worst, of the usual and of the best."""
LEAST_SIDE = 192
"""Pixels of a picture: smaller images are enlarged by a whole number."""
DRAWN, MARKED = (255, 176, 0), (0, 158, 230)
"""Colours of the two outlines, which differ for the colour-blind, too."""
Pixels = np.ndarray[Any, Any]


def own_pictures(worker: StudyWorker, predictor: Predictor) -> tuple[CasePicture, ...]:
    """Of a segmentation; none of any other study."""
    task = worker.task
    if task is None or not task.segmentation or not len(worker.parts["test"][1]):
        return ()
    x, y = worker.parts["test"]
    scores = score_rows(predictor.algorithm, predictor.params, x, y, task)
    dice, iou = dice_of(scores.predicted, scores.actual), union_share_of(scores.predicted, scores.actual)
    pictures = []
    for row, group in chosen(dice):
        marked = predictor.predict_prepared(x[row : row + 1])[0] >= 0.5
        png = png_of(np.asarray(x[row]), np.asarray(y[row]) > 0, marked)
        pictures.append(CasePicture(group, row + 1, float(dice[row]), float(iou[row]), png))
    return tuple(pictures)


def chosen(dice: Pixels) -> list[tuple[int, str]]:
    """Rows of the worst, the middle and the best images, none of them twice."""
    order = np.argsort(dice, kind="stable")
    at = max(0, (len(order) - SHOWN) // 2)
    groups = (("worst", order[:SHOWN]), ("usual", order[at : at + SHOWN]), ("best", order[-SHOWN:]))
    found: dict[int, str] = {}
    for name, rows in groups:
        for row in rows:
            found.setdefault(int(row), name)
    return list(found.items())


def png_of(pixels: Pixels, drawn: Pixels, marked: Pixels) -> bytes:
    """The image in grey or colour with both outlines."""
    from PIL import Image

    times = max(1, -(-LEAST_SIDE // max(drawn.shape)))
    image = np.repeat(np.repeat(pixels, times, axis=0), times, axis=1)
    image = np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image.copy()
    for mask, colour in ((drawn, DRAWN), (marked, MARKED)):
        image[outline(np.repeat(np.repeat(mask, times, axis=0), times, axis=1))] = colour
    content = BytesIO()
    Image.fromarray(image).save(content, "PNG")
    return content.getvalue()


def outline(mask: Pixels) -> Pixels:
    """Pixels of the mask with a neighbour (above, below, left or right) outside of it."""
    padded = np.pad(mask, 1)
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return np.asarray(mask & ~inside)
