"""Everything about one method's predictions as plain values, ready for `result.json`."""

from collections.abc import Sequence
from typing import Any

from wardround.core.bounds import CountOrAll, Share
from wardround.core.contracts import Report, Scores, Task
from wardround.evaluate.intervals import Interval, bootstrap_intervals
from wardround.evaluate.metrics import MeasuredValue, measure_sites
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
) -> Report:
    """Every metric at every site and over all of them, with intervals (`resamples=0`: without)."""
    measured = measure_sites(scores, task, metrics, positive=positive, part=part)
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
