"""What the measures of quality are called, which way is better, and what they mean to someone who reads one report."""

from typing import NamedTuple


class Meaning(NamedTuple):
    label: str
    lower: bool
    """Whether a lower value is better."""
    words: str
    neutral: float | None = None
    """The value of a model that knows nothing, where there is one."""


MEANINGS = {
    "roc_auc": Meaning(
        "ROC-AUC",
        False,
        "how often the model gives a patient with the outcome a higher risk than one without it "
        "(0.5 is guessing, 1 is perfect)",
        0.5,
    ),
    "pr_auc": Meaning("PR-AUC", False, "the share of right alarms, averaged over all thresholds (1 is perfect)"),
    "accuracy": Meaning("Accuracy", False, "the share of patients for whom the model is right"),
    "balanced_accuracy": Meaning(
        "Balanced accuracy", False, "the share of right answers, averaged over the outcomes (1 is perfect)"
    ),
    "f1": Meaning("F1", False, "precision and recall in one number, their harmonic mean (1 is perfect)"),
    "precision": Meaning("Precision", False, "the share of alarms that are right"),
    "recall": Meaning("Recall", False, "the share of patients with the outcome whom the model finds"),
    "brier": Meaning("Brier score", True, "the mean squared error of the predicted probabilities (0 is perfect)"),
    "log_loss": Meaning(
        "Log loss", True, "a penalty for predicted probabilities that are confident and wrong (0 is perfect)"
    ),
    "calibration": Meaning(
        "Calibration error", True, "how far predicted probabilities lie from observed shares (0 is perfect)"
    ),
    "calibration_error": Meaning(
        "Calibration error", True, "how far predicted probabilities lie from observed shares (0 is perfect)"
    ),
    "c_index": Meaning(
        "C-index",
        False,
        "how often, of two patients, the one who is given the higher risk has the event sooner "
        "(0.5 is guessing, 1 is perfect)",
        0.5,
    ),
    "integrated_brier": Meaning(
        "Integrated Brier score",
        True,
        "the mean squared error of the predicted survival over the horizons, with weights for patients who were lost "
        "from sight (0 is perfect)",
    ),
    "horizon_gap": Meaning(
        "Gap at the horizons",
        True,
        "how far the mean predicted risk lies from the share who had the event (0 is perfect)",
    ),
    "rmse": Meaning("RMSE", True, "the typical size of an error, large errors counting more (0 is perfect)"),
    "mae": Meaning("MAE", True, "the mean size of an error (0 is perfect)"),
    "dice": Meaning(
        "Dice",
        False,
        "how far what the model marks and what was drawn by hand coincide, image by image (0 is nowhere, 1 is perfect)",
    ),
    "iou": Meaning("IoU", False, "the part that both mark, of what either marks, image by image (1 is perfect)"),
    "pixel_recall": Meaning("Pixel recall", False, "the share of the structure that the model marks"),
    "pixel_precision": Meaning("Pixel precision", False, "the share of what the model marks that is right"),
    "pixel_log_loss": Meaning(
        "Pixel log loss", True, "a penalty for pixels that the model is confident and wrong about (0 is perfect)"
    ),
    "r2": Meaning("R²", False, "the share of variation explained (0 is no better than the mean, 1 is perfect)", 0.0),
}


def label_of(metric: str) -> str:
    return MEANINGS[metric].label if metric in MEANINGS else metric


def is_lower_better(metric: str) -> bool | None:
    """None for a measure we do not know: then nothing is called best."""
    return MEANINGS[metric].lower if metric in MEANINGS else None


def meaning_of(metric: str) -> str:
    return MEANINGS[metric].words if metric in MEANINGS else ""


def direction(metric: str) -> str:
    lower = is_lower_better(metric)
    return "" if lower is None else "lower is better" if lower else "higher is better"
