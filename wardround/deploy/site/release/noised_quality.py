"""How well a model does at a site of a private study, as it leaves: under noise, debited first, or not at all.

With level "site", and where a site uses a model of its own that was fitted without noise, nothing is told: the noise
on validation or test patients would not cover the training patients who made that model.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wardround.core.contracts import Report, Scores, Task
from wardround.deploy.protocol.requests import AboutModel, Received
from wardround.deploy.site.release.privacy_guard import Promise
from wardround.privacy.noised_sums import noise_key
from wardround.study.noised_figures import Ends, loss_bound, noised_figures, noised_look


def private_losses(
    promise: Promise, scores: Scores, task: Task, smallest_cell: int, asked: Received[AboutModel], *, common: bool
) -> dict[str, Any]:
    """How many patients, which is public, the noised sum of their losses, and how many are right, noised too."""
    promise.check_part(asked.question.part, "validation")
    rows, bound = len(scores.actual), loss_bound(task, outcome_range(promise))
    untold = {"rows": np.int64(0), "loss": np.float64(0), "right": np.int64(0)}
    if rows < max(1, smallest_cell) or bound is None or not common:
        return untold
    noise = promise.look(asked.digest)
    if noise is None:
        return untold
    look = noised_look(scores.predicted, scores.actual, bound, noise, noise_key(None), survival=task.survival)
    return {"rows": np.int64(rows), "loss": np.float64(look.loss), "right": np.int64(look.right)}


def private_figures(
    promise: Promise,
    scores: Scores,
    task: Task,
    metrics: Sequence[str],
    positive: int,
    asked: Received[AboutModel],
    *,
    common: bool,
) -> Report | None:
    """The figures from one noised table; none where they are not made."""
    promise.check_part(asked.question.part, "test")
    noise = promise.figures(asked.digest) if common else None
    if noise is None:
        return None
    return noised_figures(
        scores,
        task,
        promise.site,
        metrics=metrics,
        positive=positive,
        noise=noise,
        key=noise_key(None),
        ends=outcome_range(promise),
        resamples=promise.study.evaluation.resamples,
    )


def outcome_range(promise: Promise) -> Ends | None:
    """Between what values the outcome of a regression lies, where the study says so."""
    return promise.section.outcome
