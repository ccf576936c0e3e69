"""Shares of patients with intervals that also hold for few patients: Wilson's score interval.

Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927. Never leaves 0 to 1, and has
a width where everybody or nobody is counted.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from wardround.evaluate.rows import Numbers


class Estimate(NamedTuple):
    """A figure with its interval, or the reason why there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    def plain(self) -> dict[str, Any]:
        """As `result.json` holds a figure."""
        if self.value is None:
            return {"value": None, "undefined": self.reason}
        if self.low is None or self.high is None:
            return {"value": self.value}
        return {"value": self.value, "low": self.low, "high": self.high}


def wilson_interval(count: Numbers, patients: Numbers, level: float = 0.95) -> tuple[Numbers, Numbers]:
    """Low and high end of the share count / patients; not a number where there is nobody.

    >>> [round(float(end), 4) for end in wilson_interval(np.array(0), np.array(10))]
    [0.0, 0.2775]
    """
    z = float(ndtri(0.5 + level / 2))
    count, patients = np.asarray(count, np.float64), np.asarray(patients, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = count / patients
        middle = (share + z**2 / (2 * patients)) / (1 + z**2 / patients)
        half = z / (1 + z**2 / patients) * np.sqrt(share * (1 - share) / patients + z**2 / (4 * patients**2))
        # At 0 and at 1 the formula ends there exactly; rounding must not push it past.
        low = np.where(count == 0, 0.0, middle - half)
        high = np.where(count == patients, 1.0, middle + half)
    return np.where(patients > 0, low, np.nan), np.where(patients > 0, high, np.nan)


def proportion(count: int, patients: int, nobody: str, level: float = 0.95) -> Estimate:
    """The share of the patients; `nobody` says why there is none where there are no patients."""
    if not patients:
        return Estimate(None, reason=nobody)
    low, high = wilson_interval(np.array(count), np.array(patients), level)
    return Estimate(count / patients, float(low), float(high))
