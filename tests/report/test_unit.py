"""Rows of a study of images are images: a report and a model card must not call them patients."""

from wardround.core.contracts import Task
from wardround.report.clinical.operating_point import hundred_patients
from wardround.report.model_card.text import data
from wardround.report.model_card.tripod import class_words
from wardround.report.run.summary import limits, participants
from wardround.report.unit import COUNTED, unit_of, units_of
from wardround.runs.clinical.figures import FlagCounts
from wardround.runs.fields import TOLERANT
from wardround.runs.run import Run
from wardround.runs.sites import PredictionTask, SiteSummary
from wardround.study.model_facts import prediction_task


def run_of(kind: str, *, images: bool = False) -> Run:
    task = PredictionTask.model_construct(kind=kind, images=images, positive="yes")
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


def test_labels_of_images_count_images_too():
    federation = Task((16, 16, 1), ("no", "yes"), "finding")
    task = prediction_task(federation, (), 1)
    assert task.plain()["images"]
    assert "images" not in prediction_task(Task((3,), ("no", "yes")), ("a", "b", "c"), 1).plain()
    run = run_of("classification", images=True)
    assert unit_of(run) == "image"
    assert COUNTED in limits(run)
    counts = FlagCounts.model_validate(
        {"rows": 20, "true_positives": 4, "false_positives": 1, "true_negatives": 13, "false_negatives": 2},
        context=TOLERANT,
    )
    assert hundred_patients(run, counts).startswith("Of 100 images like these, <strong>25 are flagged, 20 of them")
    assert hundred_patients(run_of("classification"), counts).startswith("Of 100 patients like these")


def test_a_model_card_says_what_it_counted():
    rows = {"train": 24, "validation": 9, "test": 9}
    known = {"sites": 2, "rows": rows, "by_site": {}, "withheld": 0, "smallest_cell": 10}
    card = {"data": known, "left_out": 0}
    for task, unit in (
        ({"images": True, "kind": "classification"}, "images"),
        ({"kind": "classification"}, "patients"),
    ):
        said = " ".join(data({**card, "task": task}))
        assert f"24 {unit} for training" in said
        assert (COUNTED in said) == (unit == "images")


def test_a_weighted_loss_is_told_among_what_was_done_for_rare_outcomes():
    assert class_words({"model": {"name": "pain_cnn"}}) == "Classes were neither weighted nor resampled."
    told = class_words({"model": {"name": "pain_cnn", "loss": "weighted", "positive_weight": 2.0}})
    assert told == "A row with the outcome counted 2 times in the loss."
    told = class_words({"model": {"name": "pain_cnn", "downsample": 0.2}})
    assert told == "Of looks at rows without the outcome 20 % counted, drawn anew each time."
