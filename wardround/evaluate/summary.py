"""The sites taken together: means, percentiles and spread over the sites where a metric is defined.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018, for the percentiles over sites. The spread is weighted
by patients, in population form. How many sites a figure rests on is always told with it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from wardround.evaluate.metrics import MeasuredValue, SiteMeasures
from wardround.evaluate.rows import Numbers

PERCENTILES = (10, 50, 90)
NOWHERE = "undefined at every site"


class Summary(NamedTuple):
    """One metric over `defined` of `sites` sites."""

    weighted: MeasuredValue
    unweighted: MeasuredValue
    percentiles: Mapping[int, float | None]
    sd_between_sites: MeasuredValue
    defined: int
    sites: int


def weighted_mean(values: Numbers, rows: Numbers) -> Numbers:
    """Over the last axis (sites), by patients, where there is a value; not a number where there is none."""
    weight = np.where(np.isnan(values), 0.0, rows)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(np.isnan(values), 0.0, values * rows).sum(axis=-1) / weight.sum(axis=-1))


def unweighted_mean(values: Numbers) -> Numbers:
    """Over the last axis (sites), every site alike, where there is a value."""
    return weighted_mean(values, np.ones(values.shape[-1]))


def summarise(values: Numbers, rows: Numbers) -> Summary:
    """`values` of each site, not a number where undefined, and its number of patients."""
    there = ~np.isnan(values)
    have, weight = values[there], rows[there].astype(np.float64)
    if not len(have):
        nothing = MeasuredValue(None, NOWHERE)
        return Summary(nothing, nothing, dict.fromkeys(PERCENTILES), nothing, 0, len(values))
    mean = float(weighted_mean(have, weight))
    sd = MeasuredValue(float(np.sqrt(np.average(np.square(have - mean), weights=weight))))
    return Summary(
        weighted=MeasuredValue(mean),
        unweighted=MeasuredValue(float(have.mean())),
        percentiles=dict(zip(PERCENTILES, np.percentile(have, PERCENTILES).tolist(), strict=True)),
        # The spread of a single site would be 0, which reads as "all sites agree".
        sd_between_sites=sd if len(have) > 1 else MeasuredValue(None, "defined at one site only"),
        defined=len(have),
        sites=len(values),
    )


def summaries(measured: SiteMeasures) -> dict[str, Summary]:
    """Every metric over all sites."""
    return {name: summarise(values, measured.rows.counts) for name, values in measured.values.items()}
