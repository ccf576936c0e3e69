"""Decision curves: is acting on the model better than treating everybody, or nobody?

Vickers & Elkin, "Decision curve analysis: a novel method for evaluating prediction models", Med Decis Making 2006. Who
would act at a risk of t or more holds a missed patient for (1 - t) / t times as bad as a false alarm. Net benefit is
the share of patients flagged rightly less the share flagged wrongly, the latter times t / (1 - t). Patients are drawn
again for the intervals; since only the number of thresholds below a patient's risk matters, a draw is one of
multinomial counts, exact and cheap.
"""

from typing import Any

import numpy as np

from wardround.evaluate.intervals import interval
from wardround.evaluate.rows import Numbers

THRESHOLDS = np.arange(1, 100) / 100
DRAWS = 0xDCA


def net_benefits(counts: Numbers, thresholds: Numbers) -> tuple[Numbers, Numbers]:
    """Of the model and of treating all, shape (..., thresholds).

    `counts` has shape (..., 2, thresholds + 1): patients without and with the outcome, by how many thresholds their
    risk reaches.
    """
    reached = np.flip(np.cumsum(np.flip(counts, -1), axis=-1), -1)
    patients = reached[..., :1].sum(axis=-2)
    odds = thresholds / (1 - thresholds)
    flagged = reached[..., 1:]
    model = (flagged[..., 1, :] - odds * flagged[..., 0, :]) / patients
    everybody = (reached[..., 1, :1] - odds * reached[..., 0, :1]) / patients
    return np.asarray(model), np.asarray(everybody)


def decision_curve(
    risk: Numbers, ill: Numbers, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, Any]:
    """Net benefit at every threshold, and how far it lies above the better of treating all and none."""
    reached = np.searchsorted(THRESHOLDS, np.asarray(risk, np.float64), side="right")
    width = len(THRESHOLDS) + 1
    counts = np.bincount(np.asarray(ill, np.int64) * width + reached, minlength=2 * width).reshape(2, width)
    return curve_of_counts(counts, THRESHOLDS, resamples=resamples, level=level, seed=seed)


def curve_of_counts(
    counts: Numbers, thresholds: Numbers, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, Any]:
    """The same from counts of shape (2, thresholds + 1) as `net_benefits` takes them."""
    rows = int(counts.sum())
    with np.errstate(invalid="ignore"):
        model, everybody = net_benefits(counts, thresholds)
    gain = model - np.maximum(everybody, 0.0)
    curve: dict[str, Any] = {
        "thresholds": thresholds.tolist(),
        "net_benefit": model.tolist(),
        "treat_all": everybody.tolist(),
        "gain": gain.tolist(),
        "rows": rows,
    }
    if not resamples or not rows:
        return curve
    rng = np.random.default_rng((seed, DRAWS))
    drawn = rng.multinomial(rows, counts.ravel() / rows, size=resamples).reshape(resamples, *counts.shape)
    models, everybodies = net_benefits(drawn, thresholds)
    gains = models - np.maximum(everybodies, 0.0)
    for name, draws, value in (("", models, model), ("gain_", gains, gain)):
        ends = [interval(draws[:, place], float(value[place]), level) for place in range(len(thresholds))]
        curve |= {f"{name}low": [end.low for end in ends], f"{name}high": [end.high for end in ends]}
    return curve
