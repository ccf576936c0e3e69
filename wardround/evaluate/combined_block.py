"""Figures over all sites from figures that each site computed for itself, where predictions may not leave.

The mean over sites, weighted by patients or not, of every metric; its interval treats the sites' intervals as
independent normal ones, so it is an approximation, unlike the bootstrap over all patients in simulation.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from wardround.core.contracts import Report

Z = 1.959963984540054
PERCENTS = (10, 50, 90)


def combined_blocks(blocks: Mapping[str, Report]) -> Report:
    """One block, as `result_block` gives it, from a block of each site by its name."""
    sites = {name: block["sites"][name] for name, block in blocks.items()}
    rows = {name: int(block["rows"][name]) for name, block in blocks.items()}
    metrics = list(dict.fromkeys(metric for figures in sites.values() for metric in figures))
    combined = {
        metric: {name: figures[metric] for name, figures in sites.items() if metric in figures} for metric in metrics
    }
    return {
        "sites": sites,
        "weighted": {metric: mean_of(combined[metric], rows, len(blocks)) for metric in metrics},
        "unweighted": {metric: mean_of(combined[metric], dict.fromkeys(rows, 1), len(blocks)) for metric in metrics},
        "percentiles": {metric: percentiles(combined[metric]) for metric in metrics},
        "sd_between_sites": {metric: spread(combined[metric], rows) for metric in metrics},
        "rows": rows,
    }


def mean_of(figures: Mapping[str, Any], weights: Mapping[str, int], sites: int) -> dict[str, Any]:
    defined = {name: one for name, one in figures.items() if one.get("value") is not None}
    if not defined:
        reason = next((one.get("undefined") for one in figures.values()), None) or "no site could tell"
        return {"value": None, "undefined": reason, "sites_defined": 0, "sites": sites}
    weight = np.array([weights[name] for name in defined], np.float64)
    weight /= weight.sum()
    value = float(weight @ np.array([one["value"] for one in defined.values()]))
    combined: dict[str, Any] = {"value": value, "sites_defined": len(defined), "sites": sites}
    reach = [(one.get("low"), one.get("high")) for one in defined.values()]
    if all(low is not None and high is not None for low, high in reach):
        errors = np.array([(high - low) / (2 * Z) for low, high in reach])
        width = Z * float(np.sqrt(np.sum((weight * errors) ** 2)))
        combined |= {"low": value - width, "high": value + width}
    else:
        combined["no_interval"] = "some sites told no interval"
    return combined


def percentiles(figures: Mapping[str, Any]) -> dict[str, float | None]:
    values = [one["value"] for one in figures.values() if one.get("value") is not None]
    return {str(percent): float(np.percentile(values, percent)) if values else None for percent in PERCENTS}


def spread(figures: Mapping[str, Any], rows: Mapping[str, int]) -> dict[str, Any]:
    """The standard deviation between sites, weighted by patients, population form."""
    defined = {name: one["value"] for name, one in figures.items() if one.get("value") is not None}
    if len(defined) < 2:
        return {"value": None, "undefined": "fewer than two sites could tell"}
    weight = np.array([rows[name] for name in defined], np.float64)
    values = np.array(list(defined.values()), np.float64)
    mean = np.average(values, weights=weight)
    return {"value": float(np.sqrt(np.average((values - mean) ** 2, weights=weight)))}
