"""Fairness in a result: which group every held-out patient is of, and the measures of every method over its repeats.

Groups are the columns that [data] groups names (or the data set itself does). A group that is too small to be told of
in one repeat is withheld in all. Beside the averages stand the figures of single repeats: with them, settings that were
run apart can be compared beyond chance.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wardround.core.contracts import Report, Scores, intensities
from wardround.core.federation import Federation
from wardround.core.overlap import truth_of
from wardround.engine.predictions import score_rows
from wardround.evaluate.fairness_block import BETWEEN, SMALLEST, add_crossings, fairness_block, small_groups
from wardround.evaluate.losses import loss_of
from wardround.evaluate.metrics import measure_sites
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import Study

if TYPE_CHECKING:
    from wardround.workflows.run import TrainedModel

Numbers = np.ndarray[Any, Any]
OVERALL = ("accuracy", "precision", "recall", "f1", "roc_auc")
AT_ONCE = 8192


def fairness_of(study: Study, settings: Sequence[Setting], trained: "Sequence[TrainedModel]") -> Report | None:
    """The "fairness" block of one method, averaged over repeats; none where the data have no groups."""
    from wardround.workflows.results import average  # which itself asks for this block

    if not settings[0].federation.groups:
        return None
    smallest = max(SMALLEST, study.data.preparation.smallest_cell)
    columns = [held_out_groups(settings[one.repeat].federation, one) for one in trained]
    small: dict[str, set[str]] = {}
    for each in columns:
        for column, values in add_crossings(each).items():
            small.setdefault(column, set()).update(small_groups(values, smallest))
    blocks = [
        fairness_block(
            one.scores,
            settings[one.repeat].federation.task,
            own,
            positive=settings[one.repeat].positive,
            smallest=smallest,
            withheld=small,
            main=study.study.metric,
            resamples=study.evaluation.resamples,
            seed=study.study.seed,
        )
        for one, own in zip(trained, columns, strict=True)
    ]
    figures = [figures_of(study, settings[one.repeat], one, block) for one, block in zip(trained, blocks, strict=True)]
    return {**average(blocks), "repeats": figures}


def held_out_groups(federation: Federation, trained: "TrainedModel") -> dict[str, Numbers]:
    """For every group column its value for each predicted patient, in the order of the scores."""
    first, count = federation.part("test")
    if len(trained.sites) < len(federation.sites):
        place = {name: index for index, name in enumerate(federation.sites)}
        chosen = [place[name] for name in trained.sites]
        first, count = first[chosen], count[chosen]
    rows = np.concatenate([np.arange(start, start + size) for start, size in zip(first, count, strict=True)])
    labels = federation.y[rows]
    if not np.array_equal(truth_of(labels) if federation.task.segmentation else labels, trained.scores.actual):
        raise ValueError("the predictions are not those of the held-out patients, in their order")
    return {name: values[rows] for name, values in federation.groups.items()}


def figures_of(study: Study, setting: Setting, trained: "TrainedModel", block: Report) -> dict[str, Any]:
    """One repeat in single numbers: over all patients, by column, and the recall of every group."""
    task = setting.federation.task
    everyone = trained.scores._replace(first=np.array([0, len(trained.scores.actual)]))
    told: dict[str, Any] = {}
    if task.survival:
        measured = measure_sites(everyone, task)
        told |= {name: measured.measure(name, 0).value for name in measured.metrics}
    if task.classification:
        measured = measure_sites(everyone, task, OVERALL, positive=setting.positive)
        told |= {name: measured.measure(name, 0).value for name in OVERALL}
    if "generalized_entropy_index" in block:
        told["generalized_entropy_index"] = block["generalized_entropy_index"]["value"]
    told["overfitting"] = overfitting(study, setting, trained)
    for column, one in block["columns"].items():
        told |= {
            f"{column}/{name}": figure["value"]
            for name, figure in one.items()
            if isinstance(figure, Mapping) and "value" in figure
        }
        told |= {
            f"{column}/recall/{group}": own["recall"]["value"]
            for group, own in one["groups"].items()
            if "recall" in own
        }
    return told


def overfitting(study: Study, setting: Setting, trained: "TrainedModel") -> float | None:
    """The loss on held-out patients less that on training patients; none where sites do not share one model."""
    federation = setting.federation
    rows = federation.rows_of("train")
    if trained.method.for_one_site or not len(rows):
        return None
    # Noise is for training; the predictions of a finished model need none.
    algorithm = assemble.build(
        study.model_copy(update={"privacy": None}), trained.method, federation.task, federation.sites
    )
    if algorithm.personal is not None:
        return None
    if federation.task.segmentation:
        own = score_rows(algorithm, trained.params, federation.x[rows], federation.y[rows], federation.task)
    else:
        parts = [
            np.asarray(algorithm.predict(trained.params, intensities(federation.x[rows[start : start + AT_ONCE]])))
            for start in range(0, len(rows), AT_ONCE)
        ]
        own = Scores(np.concatenate(parts), federation.y[rows], np.array([0, len(rows)]))
    gap = loss_of(trained.scores, federation.task).weighted - loss_of(own, federation.task).weighted
    return float(gap) if np.isfinite(gap) else None


def by_group(block: Report) -> dict[str, dict[str, Any]]:
    """Column → group → its figures; a withheld group has no rows to show."""
    return {
        column: {**one["groups"], **{name: {"rows": 0} for name in one["withheld"]}}
        for column, one in block["columns"].items()
        if BETWEEN not in column
    }
