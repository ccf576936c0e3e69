"""What a site tells of its patients: in cells of its own, and how well a model does so coarsely that no patient shows.

A statistic is told in the policy's cells, or where the study asks for larger ones in a doubling of them: the same count
told in cells of 10, 11, 12 and so on would soon be known. Shares of patients, Brier score and calibration are told on a
grid on which one patient makes at most half a step (see `queries.cells`), areas under curves on one on which a patient
of the rarer outcome makes at most a whole one; no smooth figure in steps below 1/64. A loss may be one patient's alone,
so it is clipped before it is added up, and told on a grid of its own. Which of two steps is told is drawn at random
where a site says so (see `grid_offset`). Figures of an outcome that fewer patients than a cell have, or (for shares)
are predicted to have, are withheld: a recall of two thirds is three patients. So is a C-index of which one patient has
more than two cell-ths of the pairs. With a smallest cell of 1 all is exact.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Report, Scores, Task
from wardround.core.overlap import DRAWN, FOUND, LOSS
from wardround.core.quality import row_losses
from wardround.engine.registry import find
from wardround.evaluate.block import result_block
from wardround.evaluate.losses import loss_of
from wardround.evaluate.rows import rows_of
from wardround.evaluate.survival.measures import patients_compared, patients_seen
from wardround.queries.cells import Offset, coarse_moments, coarse_share, fences, in_cells, on_grid, step_above

Numbers = np.ndarray[Any, Any]
OVER_ALL = ("accuracy", "brier", "calibration", "log_loss")
"""Figures over all patients alike; the others look at outcomes one by one."""
SMOOTH = ("roc_auc", "pr_auc", "brier", "calibration", "log_loss", "c_index", "integrated_brier", "horizon_gap")
"""Figures of ranks and probabilities."""
RANKS = ("roc_auc", "pr_auc", "c_index")
FINE = 128
"""Patients for whose shares the grid has steps of 1/64."""
WEIGHTED = ("integrated_brier", "horizon_gap")
"""Figures of survival in which patients weigh one over the chance of not having been censored."""
KEEP = 0.8
"""A patient moves these by its own weight, and by a quarter as much through the weights of others."""
FEW_EVENTS = "reported only where enough patients had the event, and enough were followed up without it"
FEW_PAIRS = "reported only where no patient is in a large share of the pairs that are compared"
UNDEFINED = "not defined for the patients of this site"
FEW_IMAGES = "reported only where enough images have something to be found, and something was found in enough"
FEW = "reported only where every outcome has enough patients, and is predicted for enough of them"


def to_nearest(name: str) -> float:
    """Rounds every figure to the nearest step."""
    return 0.5


@lru_cache(maxsize=256)
def in_own_cells(recipe: Recipe, cell: int, images_each: int = 1) -> Recipe:
    """A component that tells of no fewer patients than the site allows, whatever it was asked.

    `images_each` are the most images that one patient has here: where rows are images, a cell is so many times larger.
    """
    known = {one.name for one in find(recipe.kind, recipe.name).parameters}
    if cell <= 1 or "smallest_cell" not in known:
        return recipe
    said, own = dict(recipe.settings), cell
    while isinstance(said.get("smallest_cell"), int) and own < said["smallest_cell"]:
        own *= 2
    said["smallest_cell"] = own
    if "images_each" in known:
        said["images_each"] = images_each
    return recipe._replace(settings=tuple(sorted(said.items())))


def coarse_losses(scores: Scores, task: Task, cell: int, offset: Offset = to_nearest) -> dict[str, Any]:
    """How many patients, the sum of their losses, how many are predicted rightly; zeros where they are few."""
    rows = len(scores.actual)
    if rows < cell or not rows:
        return {"rows": np.int64(0), "loss": np.float64(0), "right": np.int64(0)}
    share = 0.0 if not task.classification else float((scores.predicted.argmax(axis=1) == scores.actual).mean())
    told = in_cells(rows, cell)
    share = coarse_share(share, rows, offset("right")) if cell > 1 else share
    loss = coarse_mean_loss(scores, task, cell, offset("loss")) * told
    return {"rows": np.int64(told), "loss": np.float64(loss), "right": np.int64(round(share * told))}


def coarse_counts(counts: Numbers, cell: int, offset: Offset) -> list[list[int]]:
    """Every count on a grid of whole cells, up or down by chance: one patient more shows with a chance of 1 / cell.

    Sums over sites stay right on average, as they would not if every count were rounded down.
    """
    return [
        [round(on_grid(int(one), cell, offset(f"count {row} {place}"))) for place, one in enumerate(line)]
        if cell > 1
        else [int(one) for one in line]
        for row, line in enumerate(counts)
    ]


def coarse_mean_loss(scores: Scores, task: Task, cell: int, offset: float = 0.5) -> float:
    """The mean loss as it may leave a site: on a grid on which one patient makes at most half a step.

    The losses of patients that lie far out, where these are fewer than a cell, count as the last of the others: a model
    that is wrong (or right) about one patient and not about all others tells nothing of that one. No log loss is larger
    than 16.2 (see `SMALLEST` in core.quality). The mean is infinite where a whole cell of predictions is no number, by
    which the coordinator sees that training diverged. With a smallest cell of 1 it is exact.
    """
    if cell <= 1:
        return loss_of(scores, task).weighted
    losses = np.sort(row_losses(np.asarray(scores.predicted, np.float64), np.asarray(scores.actual)))
    if np.isinf(losses[-cell]):
        return float("inf")
    lowest, highest = smallest_loss(losses, cell), largest_loss(losses, cell)
    return on_grid(float(np.clip(losses, lowest, highest).mean()), loss_step(highest, len(losses)), offset)


def largest_loss(ordered: Numbers, cell: int) -> float:
    """What losses are clipped to: fewer patients than a cell lie beyond, and these far out (see `queries.cells`)."""
    finite = np.where(np.isinf(ordered), ordered[-cell], ordered)
    return min(fences(finite, cell)[1], float(finite[-1]))


def smallest_loss(ordered: Numbers, cell: int) -> float:
    """The same at the lower end: a model that is sure of one patient only is right about that one, or wrong."""
    return max(fences(np.where(np.isinf(ordered), ordered[-cell], ordered), cell)[0], float(ordered[0]))


def loss_step(highest: float, rows: int) -> float:
    return step_above(2 * highest / rows)


def coarse_figures(block: Report, scores: Scores, task: Task, cell: int, offset: Offset = to_nearest) -> Report:
    """The figures of one site (see `result_block`) as they may leave it."""
    plain: Report = json.loads(json.dumps(block))
    if cell <= 1:
        return plain
    if task.regression:
        return coarse_errors(plain, scores, task, cell, offset)
    if task.segmentation:
        return coarse_overlap(plain, scores, task, cell, offset)
    patients, few = smallest_outcome(scores, task) if task.classification else (fewest_followed(scores, task),) * 2
    rows = len(scores.actual)
    losses = np.sort(row_losses(np.asarray(scores.predicted, np.float64), np.asarray(scores.actual)))
    step = loss_step(largest_loss(losses, cell), rows)
    compared = patients_compared(rows_of(scores, task)) if task.survival else float(patients)

    def figure(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
        over_all = name in OVER_ALL
        if not over_all and (patients if name in SMOOTH else few) < cell:
            return {"value": None, "undefined": FEW_EVENTS if task.survival else FEW}
        if name == "c_index" and 2 * compared < cell:
            return {"value": None, "undefined": FEW_PAIRS}
        if name == "log_loss":
            # A single patient may have any part of it, so its mean is that of `judge`, and its interval as coarse.
            mean, near = coarse_mean_loss(scores, task, cell, offset("log_loss")), clipped_losses(scores, cell)
            again = told if near is None else figures_again(plain, near, task, ["log_loss"])["log_loss"]
            # Value and interval have one offset, so that neither end of the interval passes the value.
            return {
                key: mean if key == "value" else coarse_loss(one, step, offset("log_loss"))
                for key, one in again.items()
            }
        number = patients_behind(name, rows, min(patients, compared), len(task.classes))
        if name in WEIGHTED:
            number = min(FINE, KEEP * patients_seen(rows_of(scores, task)))
        return {key: coarsen(one, number, offset(name), relative=False) for key, one in told.items()}

    return told_of_sites(plain, plain, figure, cell)


def patients_behind(name: str, rows: int, rarest: float, classes: int) -> float:
    """For how many patients the grid of a figure is made: 1 / so many is what one of them may move it by."""
    if name in RANKS:
        return min(FINE, 2 * rarest)  # a whole step for one patient: with half of it little would be left to tell
    if name == "brier" and classes > 2:
        return min(FINE, rows / 2)  # the squares of all classes are added up
    number = rows if name in OVER_ALL else rarest
    return min(FINE, number) if name in SMOOTH else number


def told_of_sites(plain: Report, shown: Report, figure: Callable[[str, Any], dict[str, Any]], cell: int) -> Report:
    # Means over sites and percentiles are of one site here: its figures once more.
    return {
        "sites": {
            site: {name: figure(name, one) for name, one in told.items()} for site, told in shown["sites"].items()
        },
        "rows": {site: in_cells(number, cell) for site, number in plain["rows"].items()},
        **{part: plain[part] for part in ("intervals",) if part in plain},
    }


def coarse_errors(plain: Report, scores: Scores, task: Task, cell: int, offset: Offset) -> Report:
    """The figures of a regression, worked out anew with clipped errors, each on the grid of what a patient adds to it.

    From a model that is wrong about one patient only, by as much as it likes, an exact error tells that one's value.
    """
    near = clipped_errors(scores, cell)
    if near is None:
        return told_of_sites(plain, plain, lambda name, told: {"value": None, "undefined": UNDEFINED}, cell)
    (site,) = plain["sites"]
    again = {"sites": {site: figures_again(plain, near, task, list(plain["sites"][site]))}}
    rows, errors = len(near.actual), np.abs(near.predicted - near.actual)
    largest = float(errors.max())
    spread = coarse_moments(np.sort(near.actual), cell).variance
    reach = float(np.abs(near.actual - near.actual.mean()).max())
    # A patient adds to the errors' squares, and to the spread that r2 divides them by.
    adds = (largest**2 + float(np.square(errors).mean()) * reach**2 / spread) / spread if spread else 0.0

    def on_own_grid(name: str, told: Any) -> Any:
        at = offset(name)
        if not isinstance(told, float) or not np.isfinite(told) or name not in ("rmse", "mae", "r2"):
            return coarsen(told, rows, at, relative=True)
        if name == "mae":
            return on_grid(told, loss_step(largest, rows), at)
        if name == "rmse":
            return float(np.sqrt(on_grid(told**2, loss_step(largest**2, rows), at)))
        return on_grid(told, loss_step(adds, rows), at)

    return told_of_sites(
        plain, again, lambda name, told: {key: on_own_grid(name, one) for key, one in told.items()}, cell
    )


def coarse_overlap(plain: Report, scores: Scores, task: Task, cell: int, offset: Offset) -> Report:
    """The figures of a segmentation: means over images of shares, on the grid on which one image makes half a step.

    Recall and precision leave images out, and are told where enough are left; a loss is clipped as that of classes is.
    """
    rows = len(scores.actual)
    behind = {
        "pixel_recall": int((scores.actual[:, DRAWN] > 0).sum()),
        "pixel_precision": int((scores.predicted[:, FOUND] > 0).sum()),
    }

    def figure(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
        number = behind.get(name, rows)
        if number < cell:
            return {"value": None, "undefined": FEW_IMAGES}
        if name != "pixel_log_loss":
            return {key: coarsen(one, min(FINE, number), offset(name), relative=False) for key, one in told.items()}
        losses = np.sort(row_losses(np.asarray(scores.predicted, np.float64), np.asarray(scores.actual)))
        step, near = loss_step(largest_loss(losses, cell), rows), clipped_losses(scores, cell)
        again = told if near is None else figures_again(plain, near, task, [name])[name]
        mean = coarse_mean_loss(scores, task, cell, offset(name))
        return {key: mean if key == "value" else coarse_loss(one, step, offset(name)) for key, one in again.items()}

    return told_of_sites(plain, plain, figure, cell)


def figures_again(plain: Report, near: Scores, task: Task, names: list[str]) -> Report:
    """Figures of one site, drawn as often as before, of other predictions."""
    drawn = plain.get("intervals", {"resamples": 0, "level": 0.95})
    (site,) = plain["sites"]
    block = result_block(near, task, [site], metrics=names, resamples=drawn["resamples"], level=drawn["level"])
    found: Report = block["sites"][site]
    return found


def clipped_losses(scores: Scores, cell: int) -> Scores | None:
    """The same patients with losses that are not far out; none where a cell of predictions is no number."""
    predicted, actual = np.array(scores.predicted, np.float64), np.asarray(scores.actual)
    losses = row_losses(predicted, actual)
    ordered = np.sort(losses)
    if np.isinf(ordered[-cell]):
        return None
    predicted = np.where(np.isfinite(predicted), predicted, 0.0)
    near = np.clip(losses, smallest_loss(ordered, cell), largest_loss(ordered, cell))
    if actual.ndim == 2:
        predicted[:, LOSS] = near
        return scores._replace(predicted=predicted)
    classes = predicted.shape[1]
    # Of a censored patient all classes from the first possible one on count together.
    later = (actual >= classes)[:, None] & (np.arange(classes) > (actual - classes)[:, None])
    predicted[later] = 0.0
    predicted[np.arange(len(actual)), np.where(actual >= classes, actual - classes, actual)] = np.exp(-near)
    return scores._replace(predicted=predicted)


def clipped_errors(scores: Scores, cell: int) -> Scores | None:
    """The same patients with outcomes and errors that are not far out; none where a cell of errors is no number."""
    actual = np.asarray(scores.actual, np.float64)
    error = np.asarray(scores.predicted, np.float64) - actual
    size = np.sqrt(row_losses(error, np.zeros_like(error)))
    ordered = np.sort(size)
    if np.isinf(ordered[-cell]):
        return None
    size = np.sqrt(np.clip(size**2, smallest_loss(ordered**2, cell), largest_loss(ordered**2, cell)))
    actual = np.clip(actual, *fences(np.sort(actual), cell))
    return scores._replace(predicted=actual + np.where(error < 0, -size, size), actual=actual)


def smallest_outcome(scores: Scores, task: Task) -> tuple[int, int]:
    """Patients of the rarest outcome, and of the rarest outcome or prediction, of those that occur."""
    held = np.bincount(scores.actual, minlength=task.outputs)
    guessed = np.bincount(scores.predicted.argmax(axis=1), minlength=task.outputs)
    rarest = int(held[held > 0].min(initial=len(scores.actual)))
    return rarest, min(rarest, int(guessed[guessed > 0].min(initial=len(scores.actual))))


def fewest_followed(scores: Scores, task: Task) -> int:
    """Of survival: patients with the event by the last horizon, or followed up to it without, whichever are fewer."""
    last = len(task.horizons)
    return int(min((scores.actual < last).sum(), (scores.actual == last).sum()))


def coarse_loss(told: Any, step: float, offset: float) -> Any:
    is_number = isinstance(told, float) and np.isfinite(told)
    return on_grid(told, step, offset) if is_number else coarsen(told, FINE, offset, relative=False)


def coarsen(told: Any, patients: float, offset: float, *, relative: bool) -> Any:
    """Numbers on their grid; a reason in words without the numbers it may hold."""
    if isinstance(told, str):
        return UNDEFINED
    if not isinstance(told, float) or not np.isfinite(told):
        return told
    # An error in years or days has no grid of its own: it is rounded in parts of itself.
    size = 2.0 ** np.floor(np.log2(abs(told))) if relative and told else 1.0
    return float(coarse_share(told / size, patients, offset) * size)
