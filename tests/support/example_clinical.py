"""Clinical figures, a flow and a table of patients for the files of an example run; names may be attacks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wardround.evaluate.clinical.calibration_fit import fit_risks
from wardround.evaluate.clinical.decision_curve import decision_curve
from wardround.evaluate.clinical.operating_point import count_flags, flags_by_site


def clinical(sites: Sequence[str], seed: int = 0, column: str = "lactate", level: str = "male") -> dict[str, Any]:
    """What `methods[].clinical` holds, of 50 patients at each site; of many sites none is told of by itself."""
    sites = sites if len(sites) <= 200 else []
    rng = np.random.default_rng(seed)
    risk = rng.beta(2, 5, 50 * max(4, len(sites)))
    ill = (rng.random(len(risk)) < risk).astype(int)
    first = np.arange(len(sites) + 1) * 50

    def fit(rows: slice) -> dict[str, Any]:
        found = fit_risks(risk[rows], ill[rows])
        return {"in_the_large": found.in_the_large.plain(), "slope": found.slope.plain()}

    return {
        "calibration": {
            **fit(slice(None)),
            "predicted": float(risk.mean()),
            "observed": float(ill.mean()),
            "sites": {name: fit(slice(50 * at, 50 * at + 50)) for at, name in enumerate(sites)},
        },
        "decision_curve": decision_curve(risk, ill, resamples=50),
        "operating_point": {
            "threshold": 0.3,
            "rule": "sensitivity",
            "target": 0.9,
            "validation_rows": 66,
            "fallback": "",
            "all": count_flags(risk >= 0.3, ill),
            "sites": flags_by_site(risk, ill, 0.3, first, sites),
        },
        "importance": {
            "kind": "standardised coefficient",
            "rows": 300,
            "columns": [
                {"column": column, "value": -0.81, "directed": True},
                {"column": "sex", "value": 0.4, "highest": level},
            ],
        },
    }


def add_clinical(files: dict[str, Any], column: str = "lactate", level: str = "male") -> dict[str, Any]:
    """The same files with all that a clinician asks; every method has figures of its own."""
    result = files["result"]
    sites = [site["name"] for site in result["sites"]]
    used = {site["name"]: site["train"] + site["validation"] + site["test"] for site in result["sites"]}
    for seed, method in enumerate(result["methods"]):
        method["clinical"] = clinical(sites, seed, column, level)
        method["algorithm"] = method["name"]
        method["scores"]["rows"] = {site["name"]: site["test"] for site in result["sites"]}
    flow = {name: {"read": rows + 7, "without_outcome": 4, "left_out": 3, "used": rows} for name, rows in used.items()}
    total = {key: sum(one[key] for one in flow.values()) for key in ("read", "without_outcome", "left_out", "used")}
    result["flow"] = {"all": total, "sites": flow}
    cell = {"missing": 2, "median": 1.9, "low": 1.2, "high": 3.05}
    counts = {"missing": 0, "counts": [30, None]}
    result["patient_table"] = {
        "smallest_cell": 10,
        "patients": total["used"],
        "sites": used,
        "sites_left_out": 0,
        "columns": [
            {"name": column, "kind": "number", "all": cell, "sites": dict.fromkeys(used, cell)},
            {"name": "sex", "kind": "text", "levels": [level, "female"], "all": {"missing": 0, "counts": [30, 90]}}
            | {"sites": dict.fromkeys(used, counts)},
        ],
        "columns_left_out": 0,
    }
    return files
