"""Calibration in two numbers: is the risk right on average, and does it spread as far as it should?

Cox, "Two further applications of a model for binary regression", Biometrika 1958; Van Calster et al., "A calibration
hierarchy for risk models", J Clin Epidemiol 2016. The outcome is regressed on the logit of the predicted risk.
Calibration in the large is the intercept where the slope is held at 1 (0 is right, above 0 the risk is told too low);
the slope is that of the free fit (1 is right, below 1 the risks are too extreme). Intervals from the information
matrix. For a quantity: the mean error, and the slope of the observed on the predicted value (least squares).
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtri, stdtrit

from wardround.evaluate.clinical.proportions import Estimate
from wardround.evaluate.rows import Numbers

SURE = 1e-7
"""Risks are taken to be at least this far from 0 and 1, whose logit is infinite."""
STEPS = 50
SMALLEST_SPREAD = 1e-9


class CalibrationFit(NamedTuple):
    """`in_the_large` is 0 and `slope` is 1 for a model whose predictions can be taken at their word."""

    in_the_large: Estimate
    slope: Estimate


def fit_risks(risk: Numbers, ill: Numbers, level: float = 0.95) -> CalibrationFit:
    """Of predicted risks and outcomes (0 or 1)."""
    if not len(ill) or not 0 < ill.sum() < len(ill):
        reason = f"only one outcome among {len(ill)} patients" if len(ill) else "no patients"
        return CalibrationFit(Estimate(None, reason=reason), Estimate(None, reason=reason))
    x = logit(np.clip(np.asarray(risk, np.float64), SURE, 1 - SURE))
    y = np.asarray(ill, np.float64)
    ones = np.ones((len(y), 1))
    large = _newton(ones, y, x, level)
    if np.ptp(x) < SMALLEST_SPREAD:
        return CalibrationFit(large, Estimate(None, reason="all patients have the same predicted risk"))
    ill_x, well_x = x[y == 1], x[y == 0]
    if ill_x.min() >= well_x.max() or ill_x.max() <= well_x.min():
        # The steeper the better: no slope is the best.
        return CalibrationFit(large, Estimate(None, reason="the predicted risks separate the outcomes completely"))
    return CalibrationFit(large, _newton(np.column_stack([x, ones]), y, np.zeros(len(y)), level))


def _newton(design: Numbers, y: Numbers, offset: Numbers, level: float) -> Estimate:
    """The first coefficient of a logistic regression by Newton's method, steps halved while they make it worse."""
    at = np.zeros(design.shape[1])

    def surprise(here: Numbers) -> float:
        total = design @ here + offset
        return float(np.logaddexp(0.0, total).sum() - y @ total)

    loss = surprise(at)
    for _ in range(STEPS):
        risk = expit(design @ at + offset)
        information = design.T @ (design * (risk * (1 - risk))[:, None])
        try:
            step = np.linalg.solve(information, design.T @ (y - risk))
        except np.linalg.LinAlgError:
            return Estimate(None, reason="no best fit exists")
        size = 1.0
        while size > 1e-6 and not surprise(at + size * step) <= loss:
            size /= 2
        at, before = at + size * step, loss
        loss = surprise(at)
        if np.abs(size * step).max() < 1e-9 or before - loss < 1e-13 * max(1.0, abs(loss)):
            break
    else:
        return Estimate(None, reason="no best fit exists")
    risk = expit(design @ at + offset)
    information = design.T @ (design * (risk * (1 - risk))[:, None])
    try:
        variance = float(np.linalg.inv(information)[0, 0])
    except np.linalg.LinAlgError:
        return Estimate(None, reason="no best fit exists")
    half = float(ndtri(0.5 + level / 2)) * np.sqrt(variance)
    return Estimate(float(at[0]), float(at[0] - half), float(at[0] + half))


def fit_values(predicted: Numbers, actual: Numbers, level: float = 0.95) -> CalibrationFit:
    """Of predicted and observed quantities: the mean of observed less predicted, and the slope."""
    count = len(actual)
    if count < 3:
        reason = f"only {count} patients" if count else "no patients"
        return CalibrationFit(Estimate(None, reason=reason), Estimate(None, reason=reason))
    predicted, actual = np.asarray(predicted, np.float64), np.asarray(actual, np.float64)
    error = actual - predicted
    large = _with_error(float(error.mean()), float(error.std(ddof=1) / np.sqrt(count)), count - 1, level)
    centered = predicted - predicted.mean()
    spread = float(centered @ centered)
    if spread <= (SMALLEST_SPREAD * max(1.0, float(np.abs(predicted).max()))) ** 2 * count:
        return CalibrationFit(large, Estimate(None, reason="all patients have the same predicted value"))
    seen = actual - actual.mean()
    slope = float(centered @ seen / spread)
    left = seen - slope * centered
    return CalibrationFit(
        large, _with_error(slope, float(np.sqrt(left @ left / (count - 2) / spread)), count - 2, level)
    )


def _with_error(value: float, error: float, freedom: int, level: float) -> Estimate:
    half = float(stdtrit(freedom, 0.5 + level / 2)) * error
    return Estimate(value, value - half, value + half)
