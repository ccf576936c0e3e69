"""How far predicted survival is from what happened: the Brier score at a horizon, and over time.

Graf et al., Statistics in Medicine 1999. Who is censored before the horizon counts through others: everybody is
weighted by one over the chance G of not having been censored yet, G(t-) for an event at t, G(h) for those beyond the
horizon h.
"""

from typing import Any

import numpy as np

from wardround.core.errors import Refusal
from wardround.statistics.survival.concordance import Censoring, censoring_of

Values = np.ndarray[Any, Any]


def brier(
    time: Values, event: Values, survival: Values, horizon: float, *, censoring: Censoring | None = None
) -> float | None:
    """The weighted mean square of (survived - predicted survival at the horizon); none without patients."""
    if not len(time):
        return None
    chance = censoring_of(time, event) if censoring is None else censoring
    struck, beyond = (time <= horizon) & (event > 0), time > horizon
    own = np.where(struck, chance.just_before(time), float(chance.at(np.asarray([horizon]))[0]))
    weight = np.divide(1.0, own, out=np.zeros(len(time)), where=(own > 0) & (struck | beyond))
    return float((weight * (beyond - survival) ** 2).mean())


def integrated_brier(
    time: Values, event: Values, survival: Values, horizons: Values, *, censoring: Censoring | None = None
) -> float | None:
    """The mean Brier score between the first and the last horizon; `survival` is (patients, horizons)."""
    if len(horizons) < 2 or (np.diff(horizons) <= 0).any():
        raise Refusal("an integrated Brier score needs two horizons or more, in ascending order")
    each = [brier(time, event, survival[:, place], float(at), censoring=censoring) for place, at in enumerate(horizons)]
    if any(one is None for one in each):
        return None
    return float(np.trapezoid(np.array(each, np.float64), horizons) / (horizons[-1] - horizons[0]))
