"""Rows of a study of masks are images: a report must not call them patients."""

from wardround.report.run.summary import limits, participants
from wardround.report.unit import COUNTED, unit_of, units_of
from wardround.runs.run import Run
from wardround.runs.sites import PredictionTask, SiteSummary


def run_of(kind: str) -> Run:
    task = PredictionTask.model_construct(kind=kind)
    counts = {"train": 24, "validation": 9, "test": 9, "prevalence": None}
    hospitals = tuple(SiteSummary(name=name, **counts) for name in ("bo", "freetown"))
    return Run("masks", task=task, hospitals=hospitals)


def test_masks_are_of_images_and_all_else_of_patients():
    masks, labels = run_of("segmentation"), run_of("classification")
    assert (unit_of(masks), units_of(labels)) == ("image", "patients")
    assert "84 images in total" in participants(masks)
    assert "84 patients in total" in participants(labels)
    assert COUNTED in limits(masks)
    assert COUNTED not in limits(labels)
