"""What a site tells of its patients: in cells of its own, and how well a model does so coarsely that no patient shows.

A statistic is told in the policy's cells, or where the study asks for larger ones in a doubling of them: the same count
told in cells of 10, 11, 12 and so on would soon be known. Shares of patients are told on a grid on which one patient
makes at most half a step (see `queries.cells`); from figures of ranks and probabilities no number of patients can be
told, so these are told in steps of 1/64. A loss may be one patient's alone, so it is clipped before it is added up, and
told on a grid of its own. Figures of an outcome that fewer patients than a cell have, or, for shares, are predicted to
have, are withheld: a recall of two thirds is three patients. With a smallest cell of 1 all is exact.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Report, Scores, Task
from wardround.core.quality import row_losses
from wardround.engine.registry import find
from wardround.evaluate.losses import loss_of
from wardround.queries.cells import coarse_share, fences, in_cells, on_grid, step_above

Numbers = np.ndarray[Any, Any]
OVER_ALL = ("accuracy", "brier", "calibration", "log_loss")
"""Figures over all patients alike; the others look at outcomes one by one."""
SMOOTH = ("roc_auc", "pr_auc", "brier", "calibration", "log_loss")
"""Figures of ranks and probabilities."""
FINE = 128
"""Patients for whose shares the grid has steps of 1/64."""
FEW = "reported only where every outcome has enough patients, and is predicted for enough of them"


def in_own_cells(recipe: Recipe, cell: int) -> Recipe:
    """A query that tells of no fewer patients than the site allows, whatever it was asked."""
    if cell <= 1 or all(one.name != "smallest_cell" for one in find("query", recipe.name).parameters):
        return recipe
    said, own = dict(recipe.settings), cell
    while isinstance(said.get("smallest_cell"), int) and own < said["smallest_cell"]:
        own *= 2
    return recipe._replace(settings=tuple(sorted({**said, "smallest_cell": own}.items())))


def coarse_losses(scores: Scores, task: Task, cell: int) -> dict[str, Any]:
    """How many patients, the sum of their losses, how many are predicted rightly; zeros where they are few."""
    rows = len(scores.actual)
    if rows < cell or not rows:
        return {"rows": np.int64(0), "loss": np.float64(0), "right": np.int64(0)}
    share = 0.0 if task.regression else float((scores.predicted.argmax(axis=1) == scores.actual).mean())
    told = in_cells(rows, cell)
    share = coarse_share(share, rows) if cell > 1 else share
    loss = coarse_mean_loss(scores, task, cell) * told
    return {"rows": np.int64(told), "loss": np.float64(loss), "right": np.int64(round(share * told))}


def coarse_mean_loss(scores: Scores, task: Task, cell: int) -> float:
    """The mean loss as it may leave a site: on a grid on which one patient makes at most half a step.

    The losses of patients that lie far out, where these are fewer than a cell, count as the largest of the others: a
    model that is wrong about one patient and right about all others tells nothing of that one. No log loss is larger
    than 16.2 (see `SMALLEST` in core.quality). The mean is infinite where a whole cell of predictions is no number, by
    which the coordinator sees that training diverged. With a smallest cell of 1 it is exact.
    """
    if cell <= 1:
        return loss_of(scores, task).weighted
    losses = np.sort(row_losses(np.asarray(scores.predicted, np.float64), np.asarray(scores.actual)))
    if np.isinf(losses[-cell]):
        return float("inf")
    highest = largest_loss(losses, cell)
    return on_grid(float(np.minimum(losses, highest).mean()), loss_step(highest, len(losses)))


def largest_loss(ordered: Numbers, cell: int) -> float:
    """What losses are clipped to: fewer patients than a cell lie beyond, and these far out (see `queries.cells`)."""
    finite = np.where(np.isinf(ordered), ordered[-cell], ordered)
    return min(fences(finite, cell)[1], float(finite[-1]))


def loss_step(highest: float, rows: int) -> float:
    return step_above(2 * highest / rows)


def coarse_figures(block: Report, scores: Scores, task: Task, cell: int) -> Report:
    """The figures of one site (see `result_block`) as they may leave it."""
    plain: Report = json.loads(json.dumps(block))
    if cell <= 1:
        return plain
    patients, few = smallest_outcome(scores, task)
    rows = len(scores.actual)
    losses = np.sort(row_losses(np.asarray(scores.predicted, np.float64), np.asarray(scores.actual)))
    step = loss_step(largest_loss(losses, cell), rows)

    def figure(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
        over_all = task.regression or name in OVER_ALL
        if not over_all and (patients if name in SMOOTH else few) < cell:
            return {"value": None, "undefined": FEW}
        if name == "log_loss" and not task.regression:
            # A single patient may have any part of it, so its mean is that of `judge`, and its interval as coarse.
            mean = coarse_mean_loss(scores, task, cell)
            return {key: mean if key == "value" else coarse_loss(one, step) for key, one in told.items()}
        number = FINE if name in SMOOTH else rows if over_all else patients
        return {key: coarsen(one, number, relative=task.regression) for key, one in told.items()}

    # Means over sites and percentiles are of one site here: its figures once more.
    return {
        "sites": {
            site: {name: figure(name, one) for name, one in told.items()} for site, told in plain["sites"].items()
        },
        "rows": {site: in_cells(number, cell) for site, number in plain["rows"].items()},
        **{part: plain[part] for part in ("intervals",) if part in plain},
    }


def smallest_outcome(scores: Scores, task: Task) -> tuple[int, int]:
    """Patients of the rarest outcome, and of the rarest outcome or prediction, of those that occur."""
    if task.regression:
        return len(scores.actual), len(scores.actual)
    held = np.bincount(scores.actual, minlength=task.outputs)
    guessed = np.bincount(scores.predicted.argmax(axis=1), minlength=task.outputs)
    rarest = int(held[held > 0].min(initial=len(scores.actual)))
    return rarest, min(rarest, int(guessed[guessed > 0].min(initial=len(scores.actual))))


def coarse_loss(told: Any, step: float) -> Any:
    is_number = isinstance(told, float) and np.isfinite(told)
    return on_grid(told, step) if is_number else coarsen(told, FINE, relative=False)


def coarsen(told: Any, patients: int, *, relative: bool) -> Any:
    """Numbers on their grid; a reason in words without the numbers it may hold."""
    if isinstance(told, str):
        return "not defined for the patients of this site"
    if not isinstance(told, float) or not np.isfinite(told):
        return told
    # An error in years or days has no grid of its own: it is rounded in parts of itself.
    size = 2.0 ** np.floor(np.log2(abs(told))) if relative and told else 1.0
    return float(coarse_share(told / size, patients) * size)
