"""Patients with and without the outcome by bands of predicted risk: a table small enough to be told by a hospital.

From it follow calibration by bands, net benefit at the cuts between them, and whom a model flags from a cut on, over
any number of hospitals and without a single prediction.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Calibration by bands, decision curve and patients flagged from the threshold on, of every site and of all."""
    whole = np.sum(list(tables.values()), axis=0)
    at = list(cuts).index(threshold) + 1

    def flags(counts: Numbers) -> dict[str, Any]:
        well, ill = counts
        return flag_counts(int(ill[at:].sum()), int(well[at:].sum()), int(ill[:at].sum()), int(well[:at].sum()), level)

    return {
        "reliability": reliability_by_band(whole, cuts, level),
        "decision_curve": curve_of_counts(whole, np.asarray(cuts), resamples=resamples, level=level, seed=seed),
        "operating_point": {
            "threshold": threshold,
            "rule": "threshold",
            "target": threshold,
            "validation_rows": 0,
            "all": flags(whole),
            "sites": {site: flags(counts) for site, counts in tables.items()},
        },
    }


def reliability_by_band(counts: Numbers, cuts: Sequence[float], level: float) -> list[dict[str, Any]]:
    """One point for each band that has patients, placed in its middle: where in it they are, nobody told."""
    edges = np.array([0.0, *cuts, 1.0])
    sizes, ill = counts.sum(axis=0), counts[1]
    low, high = wilson_interval(ill, sizes, level)
    return [
        {
            "predicted": float(edges[at : at + 2].mean()),
            "observed": float(ill[at] / sizes[at]),
            "rows": int(sizes[at]),
            "low": float(low[at]),
            "high": float(high[at]),
        }
        for at in np.flatnonzero(sizes)
    ]
