"""How well a model does for a site's patients, as it leaves: under noise, on grids, or not at all.

Nothing is told of fewer patients than a cell, and nothing about a model of the site's own that was fitted to fewer: how
it does for many others would tell of those few.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wardround.core.contracts import Report, Scores, Task
from wardround.deploy.protocol.requests import AboutModel, Received
from wardround.deploy.site.release.disclosure import coarse_counts, coarse_figures, coarse_losses
from wardround.deploy.site.release.grid_offset import grid_offset
from wardround.deploy.site.release.noised_quality import private_figures, private_losses
from wardround.deploy.site.release.privacy_guard import Promise
from wardround.evaluate.clinical.risk_table import risk_counts
from wardround.study.file import Study


class JudgedModel(NamedTuple):
    """What a model predicts for patients of the site; `fitted` to how many, where the site made it its own."""

    scores: Scores
    task: Task
    fitted: int | None
    patients: Any = None
    """Whose each row is, where the study says that patients have several: then patients count, not rows."""

    def is_told(self, cell: int) -> bool:
        return self.count() >= max(1, cell) and (self.fitted is None or self.fitted >= cell)

    def count(self, among: Any = slice(None)) -> int:
        """Patients, perhaps among some of the rows."""
        return len(self.scores.actual[among]) if self.patients is None else len(set(self.patients[among]))

    def has_enough_of_each(self, cell: int) -> bool:
        """Whether every outcome that occurs is that of enough patients, where patients have several rows."""
        if self.patients is None or not self.task.classification:
            return True
        actual = np.asarray(self.scores.actual)
        return all(self.count(actual == one) >= cell for one in np.unique(actual))


def losses_told(
    model: JudgedModel, cell: int, folder: Path, promise: Promise | None, asked: Received[AboutModel]
) -> dict[str, Any]:
    """Numbers of patients, of right ones, and the sum of losses; zeros where nothing is told."""
    scores, task, common = model.scores, model.task, model.fitted is None
    if promise is not None and promise.study.privacy is not None:
        return private_losses(promise, scores, task, cell, asked, common=common)
    if not model.is_told(cell):
        scores = Scores(scores.predicted[:0], scores.actual[:0], scores.first * 0)
    return coarse_losses(scores, task, cell, grid_offset(folder, scores))


def figures_told(
    model: JudgedModel,
    exact: Report,
    cell: int,
    folder: Path,
    promise: Promise | None,
    positive: int,
    asked: Received[AboutModel],
) -> Report | None:
    """The figures, of which `exact` ones stay here; none where nothing is told."""
    scores, task = model.scores, model.task
    if not model.is_told(cell) or not model.has_enough_of_each(cell):
        return None
    if promise is not None and promise.study.privacy is not None:
        names, common = list(exact["sites"][promise.site]), model.fitted is None
        return private_figures(promise, scores, task, names, positive, asked, common=common)
    return coarse_figures(exact, scores, task, cell, grid_offset(folder, scores))


def risks_told(model: JudgedModel, study: Study, cell: int, folder: Path, positive: int) -> list[list[int]] | None:
    """Test patients without and with the outcome in each band of predicted risk; none where that is not approved.

    Nor where fewer patients than a cell have the outcome, or have not.
    """
    scores, task, cuts = model.scores, model.task, study.evaluation.cuts
    if not cuts or study.privacy is not None or not task.binary or not model.is_told(cell):
        return None
    if not model.has_enough_of_each(cell):
        return None
    if np.bincount(scores.actual, minlength=2).min() < max(1, cell) or not np.isfinite(scores.predicted).all():
        return None
    counts = risk_counts(scores.predicted[:, positive], scores.actual == positive, cuts)
    return coarse_counts(counts, cell, grid_offset(folder, scores))
