"""What a finished analysis gives a site's own patients: harmonised measurements, component scores, propensities.

Computed where the rows are, from what the run holds. Of ComBat a site's own shift and spread are found from the first
table it applies and kept in a file of its own, so that later patients are adjusted alike.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.queries.columns import kind_of, list_some, suggest_name
from wardround.statistics.harmonisation.combat import SiteShift, harmonised, scale_from, site_shift, standardized
from wardround.statistics.multivariate.components import scores
from wardround.statistics.propensity.logistic import chances
from wardround.statistics.selection.columns import codes_of, values_of
from wardround.statistics.selection.covariates import covariate_matrix, split_kinds
from wardround.statistics.selection.rows import CompleteRows

Matrix = np.ndarray[Any, Any]
Shift = Mapping[str, Any]
APPLICABLE = ("combat", "principal_components", "propensity")


def refuse_unfit(analysis: str, where: str = "") -> None:
    if analysis not in APPLICABLE:
        raise Refusal(
            f"the analysis {analysis} has nothing to apply to patients",
            where=where,
            remedy=f"name a run of {', '.join(APPLICABLE)}",
        )


def analysis_columns(
    analysis: str, numbers: Mapping[str, Any], frame: pd.DataFrame, *, shift: Shift | None = None, where: str = ""
) -> tuple[pd.DataFrame, Shift | None]:
    """New columns, empty where a value is missing; and of ComBat the site's shift, found here or as given."""
    refuse_unfit(analysis, where)
    measured = tuple(numbers.get("columns", ()))
    y, z, known = own_rows(numbers, measured, frame, where)
    if analysis == "combat":
        return harmonised_columns(numbers, measured, y, z, known, shift, where)
    if analysis == "principal_components":
        return spread_rows({f"component_{i + 1}": one for i, one in enumerate(scores_of(numbers, y, z).T)}, known), None
    design = np.column_stack([np.ones(len(z)), z])
    chance = chances(design, np.array([numbers["intercept"], *numbers["coefficients"]]))
    return spread_rows({"propensity": chance}, known), None


def own_rows(
    numbers: Mapping[str, Any], measured: tuple[str, ...], frame: pd.DataFrame, where: str
) -> tuple[Matrix, Matrix, Matrix]:
    """Measurements (NaN where missing) and covariates of the rows that have all covariates, and which these are."""
    levels: Mapping[str, Any] = numbers.get("levels", {})
    covariates = tuple(numbers.get("covariates", ()))
    lacking = [name for name in (*measured, *covariates) if name not in frame.columns]
    if lacking:
        raise Refusal(
            f"the table lacks {list_some(lacking)}; {suggest_name(lacking[0], map(str, frame.columns))}",
            where=where,
            remedy="rename or add the columns",
        )
    words = [
        name for name in (*measured, *covariates) if not levels.get(name) and kind_of(frame[name]) in ("text", "mixed")
    ]
    if words:
        raise Refusal(f"{list_some(words)} should hold numbers", where=where, remedy="correct the values")
    kinds = {name: AgreedColumn("number") for name in measured}
    kinds |= {
        name: AgreedColumn("category", tuple(levels[name])) if levels.get(name) else AgreedColumn("number")
        for name in covariates
    }
    agreed, site = Agreed(("own",), kinds), Site("own", frame)
    by_number, categories = split_kinds(agreed, covariates)
    x = np.column_stack([values_of(site, name) for name in (*measured, *by_number)] or [np.empty((len(frame), 0))])
    codes = {name: codes_of(agreed, site, name) for name in categories}
    known = np.isfinite(x[:, len(measured) :]).all(axis=1)
    for one in codes.values():
        known &= one >= 0
    rows = CompleteRows(x[known], {name: one[known] for name, one in codes.items()}, {})
    return rows.numbers[:, : len(measured)], covariate_matrix(agreed, covariates, rows, first=len(measured)), known


def harmonised_columns(
    numbers: Mapping[str, Any],
    measured: tuple[str, ...],
    y: Matrix,
    z: Matrix,
    known: Matrix,
    shift: Shift | None,
    where: str,
) -> tuple[pd.DataFrame, Shift]:
    common = scale_from(numbers)
    if shift is None:
        whole = np.isfinite(y).all(axis=1)
        if not whole.any():
            raise Refusal("the table has no complete row", where=where, remedy="fill the gaps of some patients")
        own = site_shift(standardized(common, y[whole], z[whole]), bayes=bool(numbers.get("bayes", True)))
        shift = {"columns": list(measured), "shift": own.shift.tolist(), "variance": own.variance.tolist()}
        shift = {**shift, "patients": int(whole.sum())}
    if list(shift.get("columns", ())) != list(measured):
        raise Refusal(
            "the site's shift was found for other columns", where=where, remedy="apply without it, to find it anew"
        )
    own = SiteShift(np.asarray(shift["shift"], np.float64), np.asarray(shift["variance"], np.float64))
    return spread_rows(dict(zip(measured, harmonised(common, own, y, z).T, strict=True)), known), shift


def scores_of(numbers: Mapping[str, Any], y: Matrix, z: Matrix) -> Matrix:
    size = len(numbers["columns"])
    mean, sd = (np.asarray(numbers[key], np.float64) for key in ("mean", "sd"))
    effects = None
    if z.shape[1]:
        effects = ((z - mean[size:]) / sd[size:]) @ np.asarray(numbers["coefficients"], np.float64)
    return scores(np.asarray(numbers["loadings"]), mean[:size], sd[:size], y, effects)


def spread_rows(columns: Mapping[str, Matrix], known: Matrix) -> pd.DataFrame:
    """As many rows as the table has, with nothing where a row has a gap."""
    found = {}
    for name, values in columns.items():
        found[name] = np.full(len(known), np.nan)
        found[name][known] = values
    return pd.DataFrame(found)


def read_shift(path: Path) -> Shift:
    """A site's own shift, as it was written down when it was found."""
    try:
        found = json.loads(path.read_bytes())
        sizes = {len(found[key]) for key in ("columns", "shift", "variance")}
        if len(sizes) > 1 or not all(one > 0 for one in found["variance"]):
            raise ValueError
        return {**found, "shift": [float(one) for one in found["shift"]]}
    except (ValueError, KeyError, TypeError):
        raise Refusal(
            "the file holds no shift of a site", where=str(path), remedy="name another file, to find the shift anew"
        ) from None


def read_patients(path: Path) -> pd.DataFrame:
    """A CSV or Parquet file."""
    from wardround.data.files import read_frame

    if not path.is_file():
        raise Refusal("there is no such file", where=str(path), remedy="correct the path")
    parquet = path.suffix == ".parquet"
    return read_frame(path, lambda file: pd.read_parquet(file) if parquet else pd.read_csv(file))
