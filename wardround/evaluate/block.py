"""Everything about one method's predictions as plain values, ready for `result.json`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wardround.core.bounds import CountOrAll, Share
from wardround.core.contracts import Report, Scores, Task
from wardround.evaluate.clinical.calibration_fit import fit_risks, fit_values
from wardround.evaluate.intervals import Interval, bootstrap_intervals
from wardround.evaluate.metrics import MeasuredValue, measure_sites
from wardround.evaluate.rows import Numbers
from wardround.evaluate.summary import summaries

MOST_NAMED = 10_000
"""Sites up to which each is listed; beyond, only the figures over all sites are."""


def _to_json(measure: MeasuredValue, reach: Interval | None) -> dict[str, Any]:
    block: dict[str, Any] = {"value": measure.value}
    if reach is not None:
        block |= {"low": reach.low, "high": reach.high}
        if reach.reason and measure.value is not None:
            block["no_interval"] = reach.reason
    if measure.value is None:
        block["undefined"] = measure.reason
    return block


def result_block(
    scores: Scores,
    task: Task,
    sites: Sequence[str],
    *,
    metrics: Sequence[str] | None = None,
    positive: int = 1,
    resamples: CountOrAll = 1000,
    level: Share = 0.95,
    seed: int = 0,
    part: str = "test",
    fold: Numbers | None = None,
) -> Report:
    """Every metric at every site and over all of them, with intervals (`resamples=0`: without).

    `fold` tells which model predicted each patient, where several did.
    """
    measured = measure_sites(scores, task, metrics, positive=positive, part=part, fold=fold)
    counts = measured.rows.counts
    if len(sites) != len(counts):
        raise ValueError(f"{len(sites)} names for {len(counts)} sites")
    reach = bootstrap_intervals(measured, resamples=resamples, level=level, seed=seed) if resamples else None
    over = summaries(measured)
    named = range(len(counts)) if len(counts) <= MOST_NAMED else range(0)
    block: Report = {
        "sites": {
            sites[index]: {
                name: _to_json(measured.measure(name, index), reach.sites[name][index] if reach else None)
                for name in measured.metrics
            }
            for index in named
        },
        "weighted": {
            name: _to_json(one.weighted, reach.weighted[name] if reach else None)
            | {"sites_defined": one.defined, "sites": one.sites}
            for name, one in over.items()
        },
        "unweighted": {
            name: _to_json(one.unweighted, reach.unweighted[name] if reach else None)
            | {"sites_defined": one.defined, "sites": one.sites}
            for name, one in over.items()
        },
        "percentiles": {
            name: {str(percent): value for percent, value in one.percentiles.items()} for name, one in over.items()
        },
        "sd_between_sites": {name: _to_json(one.sd_between_sites, None) for name, one in over.items()},
        "rows": {sites[index]: int(counts[index]) for index in named},
    }
    if len(named) < len(counts):
        block["sites_not_listed"] = len(counts)
    if reach:
        block["intervals"] = {"level": level, "resamples": reach.resamples, "drawn_again": reach.by}
    return block


SLOPE, IN_THE_LARGE = "calibration_slope", "calibration_in_the_large"


def pooled_block(
    scores: Scores,
    task: Task,
    *,
    metrics: Sequence[str] | None = None,
    positive: int = 1,
    resamples: CountOrAll = 1000,
    level: Share = 0.95,
    seed: int = 0,
    fold: Numbers | None = None,
) -> Report:
    """Every metric over the patients of all sites taken as one hospital, and how the risks are calibrated there.

    Small hospitals at which a measure has no value of their own count here with their patients.
    """
    whole = scores._replace(first=np.array([0, len(scores.actual)]))
    measured = measure_sites(whole, task, metrics, positive=positive, fold=fold)
    reach = bootstrap_intervals(measured, resamples=resamples, level=level, seed=seed) if resamples else None
    block = {
        name: _to_json(measured.measure(name, 0), reach.sites[name][0] if reach else None) for name in measured.metrics
    }
    rows = measured.rows
    if not len(rows.actual) or rows.nonfinite_counts.any() or not (task.regression or task.binary):
        return block
    if task.regression:
        fitted = fit_values(rows.predicted, rows.actual, level)
    else:
        fitted = fit_risks(rows.probabilities[:, positive], rows.actual == positive, level)
    for name, one in ((SLOPE, fitted.slope), (IN_THE_LARGE, fitted.in_the_large)):
        interval = Interval(one.low, one.high, "" if one.low is not None else one.reason)
        block[name] = _to_json(MeasuredValue(one.value, one.reason), interval)
    return block
