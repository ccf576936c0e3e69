"""Risks that fit the patients of one site: shifted, stretched or bent, and only where that helps beyond noise.

Three maps, from the simplest on: in the large (a shift of the log-odds), slope (shift and stretch; Cox 1958), isotonic
(any rising map; Zadrozny and Elkan, "Transforming classifier scores into accurate multiclass probability estimates",
KDD 2002). Each is judged by cross-validation on log loss, patient by patient. The simplest map is taken that is within
one standard error (of the paired difference) of the best, the unchanged risk being the simplest of all: the
one-standard-error rule of Breiman, Friedman, Olshen and Stone, "Classification and Regression Trees", 1984. A quantity
is mapped on its own scale and judged by squared error. All maps rise, so no two patients change places.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict
from scipy.special import expit, logit

from wardround.evaluate.clinical.calibration_fit import SURE, fit_risks, fit_values
from wardround.evaluate.rows import Numbers

MapKind = Literal["none", "in_the_large", "slope", "isotonic"]
KINDS: tuple[MapKind, ...] = ("none", "in_the_large", "slope", "isotonic")
"""From the simplest on."""
FOLDS = 10
WIDEST = 50.0
"""No shift of the log-odds is larger."""


class RiskMap(BaseModel):
    """From what the model says to what is said at the site."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: MapKind = "none"
    log_odds: bool = True
    """Whether shift and slope are those of the log-odds, as for a risk, or of the value itself."""
    intercept: float = 0.0
    slope: float = 1.0
    knots: tuple[tuple[float, float], ...] = ()
    """Of an isotonic map: predicted and mapped, both rising; straight lines between, level beyond."""

    def apply(self, predicted: Numbers) -> Numbers:
        """In double precision; a risk stays above 0 and below 1."""
        predicted = np.asarray(predicted, np.float64)
        if self.kind == "none":
            return predicted
        if self.kind == "isotonic":
            before, after = np.array(self.knots).T
            return np.interp(predicted, before, after)
        if not self.log_odds:
            return self.intercept + self.slope * predicted
        return np.clip(expit(self.intercept + self.slope * odds_of(predicted)), SURE, 1 - SURE)


def odds_of(risk: Numbers) -> Numbers:
    return np.asarray(logit(np.clip(np.asarray(risk, np.float64), SURE, 1 - SURE)))


def fit_map(kind: MapKind, predicted: Numbers, actual: Numbers, *, log_odds: bool = True) -> RiskMap | None:
    """The best map of its kind, or none where the patients determine no rising one."""
    if kind == "none":
        return RiskMap(log_odds=log_odds)
    if kind == "isotonic":
        return fit_isotonic(predicted, actual, log_odds)
    if kind == "in_the_large":
        slope: float | None = 1.0
    else:
        fit = fit_risks(predicted, actual) if log_odds else fit_values(predicted, actual)
        slope = fit.slope.value
    if slope is None or slope <= 0:
        return None
    if not log_odds:
        return RiskMap(kind=kind, log_odds=False, intercept=float(np.mean(actual - slope * predicted)), slope=slope)
    from scipy.optimize import brentq

    share = float(np.mean(actual))
    if not 0 < share < 1:
        return None
    stretched = slope * odds_of(predicted)
    # At the best shift the mean risk is the share of patients with the outcome, whatever the slope.
    shift = brentq(lambda a: float(np.mean(expit(stretched + a))) - share, *(shift_range(stretched)), xtol=1e-12)
    return RiskMap(kind=kind, intercept=float(shift), slope=slope)


def shift_range(stretched: Numbers) -> tuple[float, float]:
    return -WIDEST - float(stretched.max()), WIDEST - float(stretched.min())


def fit_isotonic(predicted: Numbers, actual: Numbers, log_odds: bool) -> RiskMap:
    """As scikit-learn fits it; a risk ends short of 0 and 1 by what so few patients can tell."""
    from sklearn.isotonic import IsotonicRegression

    least = 1 / (len(actual) + 2)
    ends = {"y_min": least, "y_max": 1 - least} if log_odds else {}
    fitted = IsotonicRegression(out_of_bounds="clip", **ends)
    fitted.fit(np.asarray(predicted, np.float64), np.asarray(actual, np.float64))
    knots = zip(fitted.X_thresholds_.tolist(), fitted.y_thresholds_.tolist(), strict=True)
    return RiskMap(kind="isotonic", log_odds=log_odds, knots=tuple(knots))


class MapChoice(NamedTuple):
    """The map that is taken, and what each lost in cross-validation: its mean loss beside that of the best."""

    chosen: RiskMap
    losses: Mapping[str, float]
    behind: Mapping[str, tuple[float, float]]
    """How far each is behind the best, and the standard error of that."""
    folds: Numbers


def choose_map(predicted: Numbers, actual: Numbers, *, log_odds: bool = True, seed: int = 0) -> MapChoice:
    """The simplest map within one standard error of the best."""
    folds = folds_of(actual, log_odds, seed)
    losses: dict[str, Numbers] = {}
    for kind in KINDS:
        held = mapped_out_of_fold(kind, predicted, actual, folds, log_odds)
        if held is not None:
            losses[kind] = loss(held, actual, log_odds)
    best = min(losses, key=lambda kind: float(losses[kind].mean()))
    behind = {kind: paired_difference(own, losses[best]) for kind, own in losses.items()}
    means = {kind: float(own.mean()) for kind, own in losses.items()}
    for kind in (kind for kind in KINDS if kind in losses):
        difference, error = behind[kind]
        fitted = fit_map(kind, predicted, actual, log_odds=log_odds)
        if difference <= error and fitted is not None:
            return MapChoice(fitted, means, behind, folds)
    raise AssertionError("the best map is within its own error")


def folds_of(actual: Numbers, log_odds: bool, seed: int) -> Numbers:
    """A fold for each patient; of a risk, patients with the outcome are spread evenly."""
    rng = np.random.default_rng((seed, 0xCA1))
    groups = [np.flatnonzero(actual == 1), np.flatnonzero(actual != 1)] if log_odds else [np.arange(len(actual))]
    folds = np.zeros(len(actual), np.int64)
    for rows in groups:
        folds[rng.permutation(rows)] = np.arange(len(rows)) % FOLDS
    return folds


def mapped_out_of_fold(
    kind: MapKind, predicted: Numbers, actual: Numbers, folds: Numbers, log_odds: bool
) -> Numbers | None:
    """Each patient mapped by a map fitted without the patient's fold."""
    held = np.empty(len(actual))
    for fold in np.unique(folds):
        out = folds == fold
        fitted = fit_map(kind, predicted[~out], actual[~out], log_odds=log_odds)
        if fitted is None:
            return None
        held[out] = fitted.apply(predicted[out])
    return held


def loss(predicted: Numbers, actual: Numbers, log_odds: bool) -> Numbers:
    """Log loss of a risk, squared error of a value; one number a patient."""
    if not log_odds:
        return np.square(actual - predicted)
    risk = np.clip(predicted, SURE, 1 - SURE)
    return -np.where(actual == 1, np.log(risk), np.log1p(-risk))


def paired_difference(one: Numbers, other: Numbers) -> tuple[float, float]:
    """The mean difference and its standard error."""
    difference = one - other
    return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))
