"""How good predictions are, site by site: one formula a metric, for the estimate and for every resample.

Two classes: precision, recall, F1 and both areas look at the positive class. More classes: each class against the
rest, and the plain mean over the classes that OCCUR among the site's patients (macro). The predicted class is the most
probable one. Brier is the squared error of the positive probability; for more classes the sum over classes.

What cannot be computed is undefined and says why; no 0 and no 0.5 is put in its place. Precision is undefined where
a class that occurs is never predicted; F1 then is 0, since recall is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np

from wardround.core.contracts import Scores, Task, TaskKind
from wardround.core.errors import Refusal
from wardround.core.quality import row_losses
from wardround.engine import registry
from wardround.evaluate.calibration import calibration
from wardround.evaluate.images.overlap_metrics import (
    dice,
    iou,
    mean_of,
    no_structure,
    nothing_found,
    pixel_log_loss,
    pixel_precision,
    pixel_recall,
)
from wardround.evaluate.ranking import macro, pr_auc, roc_auc
from wardround.evaluate.rows import Numbers, Rows, rows_of
from wardround.evaluate.survival import measures as survival


class MeasuredValue(NamedTuple):
    """A number, or the reason why there is none."""

    value: float | None
    reason: str = ""


class Metric(NamedTuple):
    """`compute` gives shape (resamples, sites), not a number where undefined; `why` then says the reason."""

    compute: Callable[[Rows, Numbers | None], Numbers]
    why: Callable[[Rows, int], str]
    words: str
    higher_is_better: bool = True
    regression: bool = False
    """Whether it judges predicted values and not predicted classes."""
    segmentation: bool = False
    """Whether it judges images and their masks."""

    @property
    def kind(self) -> TaskKind:
        return "segmentation" if self.segmentation else "regression" if self.regression else "classification"


_mean = mean_of


def _counts(rows: Rows, weights: Numbers | None, classes: Sequence[int]) -> tuple[Numbers, Numbers, Numbers]:
    """Shape (resamples, sites, classes): rightly predicted, having the class, predicted to have it."""
    truth, decided = rows.truth[:, classes], rows.predicted_classes[:, classes]
    together = rows.sums(weights, np.concatenate([truth * decided, truth, decided], axis=1))
    hits, occurring, predicted = np.split(together, 3, axis=2)
    return hits, occurring, predicted


def accuracy(rows: Rows, weights: Numbers | None = None) -> Numbers:
    return _mean(rows, weights, (rows.truth * rows.predicted_classes).sum(axis=1))


def balanced_accuracy(rows: Rows, weights: Numbers | None = None) -> Numbers:
    hits, occurring, _ = _counts(rows, weights, range(len(rows.task.classes)))
    several = (occurring > 0).sum(axis=2) > 1
    return np.where(several, macro(hits / np.maximum(occurring, 1e-300), occurring > 0), np.nan)


def precision(rows: Rows, weights: Numbers | None = None) -> Numbers:
    hits, occurring, predicted = _counts(rows, weights, rows.scored_classes)
    counted = (occurring > 0) if len(rows.scored_classes) > 1 else np.ones_like(occurring, bool)
    with np.errstate(invalid="ignore"):
        return macro(hits / predicted, counted)


def recall(rows: Rows, weights: Numbers | None = None) -> Numbers:
    hits, occurring, _ = _counts(rows, weights, rows.scored_classes)
    with np.errstate(invalid="ignore"):
        return macro(hits / occurring, occurring > 0)


def f1(rows: Rows, weights: Numbers | None = None) -> Numbers:
    hits, occurring, predicted = _counts(rows, weights, rows.scored_classes)
    with np.errstate(invalid="ignore"):
        return macro(2 * hits / (occurring + predicted), occurring > 0)


def brier(rows: Rows, weights: Numbers | None = None) -> Numbers:
    classes = rows.scored_classes if len(rows.task.classes) == 2 else range(len(rows.task.classes))
    errors = np.square(rows.probabilities[:, classes] - rows.truth[:, classes])
    return _mean(rows, weights, errors.sum(axis=1))


def log_loss(rows: Rows, weights: Numbers | None = None) -> Numbers:
    return _mean(rows, weights, _finite(row_losses(rows.predicted, rows.actual)))


def rmse(rows: Rows, weights: Numbers | None = None) -> Numbers:
    return np.sqrt(_mean(rows, weights, _finite(row_losses(rows.predicted, rows.actual))))


def mae(rows: Rows, weights: Numbers | None = None) -> Numbers:
    return _mean(rows, weights, np.abs(rows.probabilities - rows.actual))


def r2(rows: Rows, weights: Numbers | None = None) -> Numbers:
    """1 - squared error / squared deviation from the site's own mean."""
    # Measured from the site's first value: a constant target gives exact zeros, and large offsets cost no digits.
    shifted = rows.actual - rows.actual[rows.first[rows.site]]
    columns = np.stack([_finite(row_losses(rows.predicted, rows.actual)), shifted, np.square(shifted)], axis=1)
    errors, plain, squares = np.moveaxis(rows.sums(weights, columns), 2, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = squares - np.square(plain) / rows.counts
        return np.where(spread > 1e-12 * squares, 1.0 - errors / spread, np.nan)


def _finite(losses: Numbers) -> Numbers:
    """Rows that are not a number count 0 here; their site is declared undefined as a whole."""
    return np.where(np.isfinite(losses), losses, 0.0)


def _unreachable(rows: Rows, site: int) -> str:
    return f"no value for {rows.patients(site)}"


def _one_class(rows: Rows, site: int) -> str:
    several = np.ptp(rows.actual[rows.first[site] : rows.first[site + 1]]) > 0
    return f"{'no fold with both classes' if several else 'only one class'} among {rows.patients(site)}"


def _no_positive(rows: Rows, site: int) -> str:
    return f"no {rows.task.classes[rows.scored_classes[0]]!r} among {rows.patients(site)}"


def _never_predicted(rows: Rows, site: int) -> str:
    _, occurring, predicted = (part[0, site] for part in _counts(rows, None, rows.scored_classes))
    # With two classes a lone positive class may be neither there nor predicted.
    missing = predicted == 0 if len(rows.scored_classes) == 1 else (predicted == 0) & (occurring > 0)
    names = [repr(rows.task.classes[rows.scored_classes[place]]) for place in np.flatnonzero(missing)]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{shown} never predicted for {rows.patients(site)}"


def _no_spread(rows: Rows, site: int) -> str:
    return f"{rows.patients(site)} without spread in the target"


CLASSIFICATION: Mapping[str, Metric] = {
    "accuracy": Metric(accuracy, _unreachable, "share of patients classified rightly"),
    "balanced_accuracy": Metric(balanced_accuracy, _one_class, "accuracy with every class counting alike"),
    "roc_auc": Metric(roc_auc, _one_class, "chance that an ill patient is ranked above a well one"),
    "pr_auc": Metric(pr_auc, _no_positive, "average precision over all thresholds"),
    "f1": Metric(f1, _no_positive, "harmonic mean of precision and recall"),
    "precision": Metric(precision, _never_predicted, "share of alarms that are right"),
    "recall": Metric(recall, _no_positive, "share of the ill who are found"),
    "brier": Metric(brier, _unreachable, "squared error of the probabilities", higher_is_better=False),
    "calibration": Metric(calibration, _unreachable, "gap between risk told and risk seen", higher_is_better=False),
    "log_loss": Metric(log_loss, _unreachable, "surprise at what happened", higher_is_better=False),
}
REGRESSION: Mapping[str, Metric] = {
    "rmse": Metric(rmse, _unreachable, "root of the mean squared error", False, True),
    "mae": Metric(mae, _unreachable, "mean absolute error", False, True),
    "r2": Metric(r2, _no_spread, "share of the variance that is explained", True, True),
}
SURVIVAL: Mapping[str, Metric] = {
    "c_index": Metric(survival.c_index, survival.no_pair, "chance that who has the event sooner is ranked higher"),
    "integrated_brier": Metric(
        survival.integrated_brier, _unreachable, "squared error of predicted survival over the horizons", False
    ),
    "horizon_gap": Metric(
        survival.horizon_gap, _unreachable, "gap between mean risk told and risk seen at the horizons", False
    ),
    "log_loss": CLASSIFICATION["log_loss"],
}
SEGMENTATION: Mapping[str, Metric] = {
    "dice": Metric(dice, _unreachable, "overlap with the mask, image by image", segmentation=True),
    "iou": Metric(iou, _unreachable, "intersection over union, image by image", segmentation=True),
    "pixel_recall": Metric(pixel_recall, no_structure, "share of the mask that is found", segmentation=True),
    "pixel_precision": Metric(pixel_precision, nothing_found, "share of finds that is right", segmentation=True),
    "pixel_log_loss": Metric(pixel_log_loss, _unreachable, "surprise at a pixel", False, segmentation=True),
}
BY_KIND: Mapping[TaskKind, Mapping[str, Metric]] = {
    "classification": CLASSIFICATION,
    "regression": REGRESSION,
    "survival": SURVIVAL,
    "segmentation": SEGMENTATION,
}
"""The one place that says how each kind of task is measured."""
METRICS: Mapping[str, Metric] = {name: metric for known in BY_KIND.values() for name, metric in known.items()}
"""Where the registry finds the kind "metric"; other packages can add to it."""


def metrics_for(task: Task, names: Sequence[str] | None = None) -> dict[str, Metric]:
    """Our metrics of a task; or those that are named, which may come from other packages."""
    known = BY_KIND[task.kind]
    return dict(known) if names is None else {name: named_metric(name, task) for name in names}


def named_metric(name: str, task: Task) -> Metric:
    known = BY_KIND[task.kind]
    if name in known:
        return known[name]
    if name not in METRICS and registry.package_of("metric", name) is not None:
        metric: Metric = registry.find("metric", name, where="[study] metric").build()
        if metric.kind == task.kind:
            return metric
    kind = task.kind if task.survival else f"a {task.kind}"
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise Refusal(
        f"there is no metric {name!r} for {kind}",
        where=f"target {task.target}",
        remedy=f"{hint}choose among {', '.join(known)}",
    )


def default_metric(task: Task) -> str:
    """What is reported first where a study does not say."""
    if task.kind == "classification":
        return "roc_auc" if task.binary else "accuracy"
    return {"regression": "rmse", "survival": "c_index", "segmentation": "dice"}[task.kind]


def names_with(task: Task, main: str | None) -> list[str]:
    """What a study measures: all of ours, and the metric of another package where it names one that is installed."""
    theirs = [main] if main and main not in METRICS and registry.package_of("metric", main) else []
    return [*metrics_for(task), *theirs]


@dataclass(frozen=True)
class SiteMeasures:
    """Every metric at every site: `values[metric][site]`, not a number where undefined."""

    rows: Rows
    metrics: Mapping[str, Metric]
    values: Mapping[str, Numbers]

    def measure(self, metric: str, site: int) -> MeasuredValue:
        """The value, or why there is none."""
        value = float(self.values[metric][site])
        if not np.isnan(value):
            return MeasuredValue(value)
        if not self.rows.counts[site]:
            return MeasuredValue(None, self.rows.patients(site))
        if broken := int(self.rows.nonfinite_counts[site]):
            return MeasuredValue(None, f"the predictions for {broken} of {self.rows.patients(site)} are not numbers")
        return MeasuredValue(None, self.metrics[metric].why(self.rows, site))


def compute_metric(rows: Rows, metric: Metric, weights: Numbers | None = None) -> Numbers:
    """Shape (resamples, sites): the metric, not a number at sites that are empty or have broken predictions."""
    return np.where((rows.counts > 0) & (rows.nonfinite_counts == 0), metric.compute(rows, weights), np.nan)


def measure_sites(
    scores: Scores,
    task: Task,
    metrics: Sequence[str] | None = None,
    *,
    positive: int = 1,
    part: str = "test",
    fold: Numbers | None = None,
) -> SiteMeasures:
    """Every metric at every site, vectorised over the sites; `fold` tells which model predicted each row."""
    rows = rows_of(scores, task, positive=positive, part=part, fold=fold)
    chosen = metrics_for(task, metrics)
    return SiteMeasures(rows, chosen, {name: compute_metric(rows, metric)[0] for name, metric in chosen.items()})
