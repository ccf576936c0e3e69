"""What was predicted for every test patient, for a study that says it may be kept."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from wardround.core.contracts import Scores, Task
from wardround.core.overlap import DRAWN, FOUND, dice_of, union_share_of
from wardround.data.survival.intervals import number_text
from wardround.study.assemble import Setting

if TYPE_CHECKING:
    from wardround.workflows.run import TrainedModel

PART = "test"


def predictions_table(settings: "Sequence[Setting]", trained: "Sequence[TrainedModel]") -> pd.DataFrame:
    """A line a patient, method and repeat: site, number of the row at the site, part, predicted and actual."""
    return pd.concat([method_predictions(settings[one.repeat], one) for one in trained], ignore_index=True)


def method_predictions(setting: Setting, trained: "TrainedModel") -> pd.DataFrame:
    """Of one method on one split; rows are counted from 1, as they stand at their site."""
    federation, scores = setting.federation, trained.scores
    task, classes = federation.task, np.array(federation.task.classes, dtype=object)
    names: dict[str, int] = {name: number for number, name in enumerate(federation.sites)}
    count = np.diff(scores.first)
    columns: dict[str, Any] = {
        "method": trained.method.name,
        "repeat": trained.repeat,
        "site": np.repeat(np.array(trained.sites, dtype=object), count),
        "row": np.concatenate([held_out_rows(setting, names[site]) for site in trained.sites]) + 1,
        "part": PART,
    }
    if task.regression:
        columns |= {"predicted": scores.predicted, "actual": scores.actual}
    elif task.survival:
        columns |= survival_columns(scores, task)
    elif task.segmentation:
        columns |= {
            "dice": dice_of(scores.predicted, scores.actual),
            "iou": union_share_of(scores.predicted, scores.actual),
            "predicted": scores.predicted[:, FOUND].astype(np.int64),
            "actual": scores.actual[:, DRAWN].astype(np.int64),
        }
    else:
        columns |= {f"probability of {name}": scores.predicted[:, place] for place, name in enumerate(classes)}
        columns |= {"predicted": classes[scores.predicted.argmax(axis=1)], "actual": classes[scores.actual]}
    return pd.DataFrame(columns)


def survival_columns(scores: Scores, task: Task) -> dict[str, Any]:
    """The risk by each horizon, how long the patient was followed up, and whether the event was seen by the last."""
    risk = np.cumsum(scores.predicted[:, :-1], axis=1)
    chances: dict[str, Any] = {f"risk by {number_text(one)}": risk[:, place] for place, one in enumerate(task.horizons)}
    return {**chances, "time": scores.times, "event": (scores.actual < len(task.horizons)).astype(int)}


def held_out_rows(setting: Setting, site: int) -> np.ndarray[Any, Any]:
    """Places of a site's test patients in its table; of arrays in the rows as they were dealt out."""
    train, validation, test = (int(number) for number in setting.federation.counts[site])
    place = np.arange(train + validation, train + validation + test)
    return np.asarray(setting.order[site][place]) if setting.order else place
