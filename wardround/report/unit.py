"""What one row of a study is to a reader: a patient, or an image, of which a patient may have many."""

from wardround.runs.run import Run
from wardround.runs.sites import PredictionTask

COUNTED = (
    "Everything here counts images, also where a text says patients. A patient with many images counts as often, and "
    "intervals take images as independent: with several images of one patient they are too narrow."
)


def unit_of(run: Run) -> str:
    return unit_of_task(run.task)


def unit_of_task(task: PredictionTask) -> str:
    return "image" if task.images or task.kind == "segmentation" else "patient"


def one_of(run: Run) -> str:
    return "an image" if unit_of(run) == "image" else "a patient"


def units_of(run: Run) -> str:
    return f"{unit_of(run)}s"
