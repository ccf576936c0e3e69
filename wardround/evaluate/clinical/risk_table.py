"""Patients with and without the outcome by bands of predicted risk: a table small enough to be told by a hospital.

From it follow calibration by bands, net benefit at the cuts between them, and whom a model flags from a cut on, over
any number of hospitals and without a single prediction. Where counts are rounded at random to whole cells, each is off
by half a cell (standard deviation, at most), and all intervals are widened by what that adds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from wardround.evaluate.clinical.decision_curve import curve_of_counts
from wardround.evaluate.clinical.operating_point import flag_counts
from wardround.evaluate.clinical.proportions import wilson_interval
from wardround.evaluate.rows import Numbers


def risk_counts(risk: Numbers, ill: Numbers, cuts: Sequence[float]) -> Numbers:
    """Shape (2, cuts + 1): patients without and with the outcome, by how many cuts their risk reaches."""
    width = len(cuts) + 1
    reached = np.searchsorted(np.asarray(cuts), np.asarray(risk, np.float64), side="right")
    return np.bincount(np.asarray(ill, np.int64) * width + reached, minlength=2 * width).reshape(2, width)


def band_figures(
    tables: Mapping[str, Numbers],
    cuts: Sequence[float],
    threshold: float,
    *,
    cells: Mapping[str, int] | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Calibration by bands, decision curve and patients flagged from the threshold on, of every site and of all.

    `cells` are the multiples to which sites round their counts at random; none: they are exact.
    """
    whole = np.sum(list(tables.values()), axis=0)
    at = list(cuts).index(threshold) + 1
    errors = {site: (cells or {}).get(site, 1) / 2 if (cells or {}).get(site, 1) > 1 else 0.0 for site in tables}
    error = float(np.sqrt(sum(one**2 for one in errors.values())))
    z = float(ndtri(0.5 + level / 2))

    def flags(counts: Numbers, off: float) -> dict[str, Any]:
        well, ill = counts
        right, false, missed, left = (int(one.sum()) for one in (ill[at:], well[at:], ill[:at], well[:at]))
        found = flag_counts(right, false, missed, left, level)
        above, below = off * np.sqrt(len(cuts) + 1 - at), off * np.sqrt(at)  # of a sum of so many counts
        for name, (count, rest), (own, other) in (
            ("sensitivity", (right, missed), (above, below)),
            ("specificity", (left, false), (below, above)),
            ("ppv", (right, false), (above, above)),
            ("npv", (left, missed), (below, below)),
        ):
            widen(found[name], z * share_error(count, rest, own, other))
        return {**found, **({"rounding": float(np.hypot(above, above))} if off else {})}

    return {
        "reliability": reliability_by_band(whole, cuts, level, error),
        "decision_curve": widened_curve(
            curve_of_counts(whole, np.asarray(cuts), resamples=resamples, level=level, seed=seed), z * error
        ),
        "operating_point": {
            "threshold": threshold,
            "rule": "threshold",
            "target": threshold,
            "validation_rows": 0,
            "all": flags(whole, error),
            "sites": {site: flags(counts, errors[site]) for site, counts in tables.items()},
        },
    }


def share_error(count: float, rest: float, own: float, other: float) -> float:
    """Of count / (count + rest), by the errors of both numbers."""
    total = count + rest
    return float(np.hypot(own * rest, other * count) / total**2) if total else 0.0


def widen(figure: dict[str, Any], by: float) -> None:
    """Add an independent error to an interval of a share, which stays between 0 and 1."""
    if not by or figure.get("low") is None:
        return
    value = float(figure["value"] if "value" in figure else figure["observed"])
    figure["low"] = max(0.0, value - float(np.hypot(value - figure["low"], by)))
    figure["high"] = min(1.0, value + float(np.hypot(figure["high"] - value, by)))


def widened_curve(curve: dict[str, Any], error: float) -> dict[str, Any]:
    """With what an error of every count adds to net benefit and gain at each threshold."""
    thresholds, rows = np.array(curve["thresholds"]), max(1, curve["rows"])
    counts = len(thresholds) - np.arange(len(thresholds))  # above each threshold
    by = error * np.sqrt(counts) * np.hypot(1.0, thresholds / (1 - thresholds)) / rows
    for low, value, high in (("low", "net_benefit", "high"), ("gain_low", "gain", "gain_high")):
        if error and low in curve:
            middle, ends = np.array(curve[value]), np.array([curve[low], curve[high]], np.float64)
            curve[low] = (middle - np.hypot(middle - ends[0], by)).tolist()
            curve[high] = (middle + np.hypot(ends[1] - middle, by)).tolist()
    return curve


def reliability_by_band(counts: Numbers, cuts: Sequence[float], level: float, error: float) -> list[dict[str, Any]]:
    """One point for each band that has patients, placed in its middle: where in it they are, nobody told."""
    edges = np.array([0.0, *cuts, 1.0])
    sizes, ill = counts.sum(axis=0), counts[1]
    low, high = wilson_interval(ill, sizes, level)
    found = [
        {
            "predicted": float(edges[at : at + 2].mean()),
            "observed": float(ill[at] / sizes[at]),
            "rows": int(sizes[at]),
            "low": float(low[at]),
            "high": float(high[at]),
        }
        for at in np.flatnonzero(sizes)
    ]
    z = float(ndtri(0.5 + level / 2))
    for point, at in zip(found, np.flatnonzero(sizes), strict=True):
        widen(point, z * share_error(ill[at], sizes[at] - ill[at], error, error))
    return found
