"""Sepsis in intensive care at two hospital systems, A and B.

Reyna et al., "Early Prediction of Sepsis from Clinical Data: The PhysioNet/Computing in Cardiology Challenge 2019",
Critical Care Medicine 2020 (CC BY 4.0): 40,336 patients, 1,552,210 hours. Needs the folder cinc2019_sepsis, and about
700 MB of memory while it reads.

`rows` "last" gives one row a patient: the last value measured of every column. "worst" takes instead the value farthest
from the usual one in the direction in which the column is dangerous (LOW: the lowest; BOTH: the one farthest from the
middle of the normal range; else the highest). The target is then whether the patient ever becomes septic. "hours" gives
one row an hour, with the challenge's label (1 from six hours before the onset) as target and the patient's number kept,
so that no patient need be in two parts. "balanced" are the instances of Caldas 2022, 3.3: hours with the last value
known of every column, the interval between beats (RR) and the deviations of pressure and breathing so far, as many
hours before sepsis as others, these drawn by `draw` from both hospitals. The hour in intensive care (ICULOS) is
a feature of an hour but not of a patient, where it would be the length of the stay, known only afterwards.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from wardround.core.bounds import CountOrAll
from wardround.data.datasets.heart_disease import split_by_site
from wardround.data.folder import data_file
from wardround.data.table import Table

LOW = ("O2Sat", "SBP", "MAP", "DBP", "BaseExcess", "HCO3", "pH", "SaO2", "Calcium", "Hct", "Hgb", "Platelets")
BOTH = {
    "Temp": 37.0,
    "Glucose": 110.0,
    "Potassium": 4.2,
    "WBC": 7.5,
    "PaCO2": 40.0,
    "Magnesium": 2.0,
    "Chloride": 101.0,
}
Values = np.ndarray[Any, Any]
OF_THE_PATIENT = ("Age", "Gender", "Unit1", "Unit2", "HospAdmTime")


THESIS = (
    *("HR", "O2Sat", "Temp", "SBP", "MAP", "DBP", "Resp", "BaseExcess", "HCO3", "FiO2", "pH", "PaCO2", "SaO2", "AST"),
    *("BUN", "Alkalinephos", "Calcium", "Chloride", "Creatinine", "Glucose", "Lactate", "Magnesium", "Phosphate"),
    *("Potassium", "Bilirubin_total", "Hct", "Hgb", "PTT", "WBC", "Platelets", "Age", "Gender", "Unit1"),
)
"""The columns of its tables B.2 and B.3."""


def sepsis(*, rows: Literal["last", "worst", "hours", "balanced"] = "last", draw: CountOrAll = 0) -> Table:
    """Sepsis among 40,336 intensive-care patients of two hospital systems (one row per patient, or per hour)."""
    path = data_file("cinc2019_sepsis", "sepsis_A_B.parquet")
    if rows == "balanced":
        return _table(_balanced(path, draw), path.name)
    hours = pd.read_parquet(path)
    if rows == "hours":
        frame = hours
    else:
        hours = hours.drop(columns="ICULOS")
        keys = ["hospital", "patient"]
        ever = hours.groupby(keys, observed=True)["SepsisLabel"].max()
        frame = _worst(hours, keys) if rows == "worst" else hours.groupby(keys, observed=True).last()
        frame = frame.assign(SepsisLabel=ever).reset_index().drop(columns="patient")
    return _table(frame, path.name)


def _table(frame: pd.DataFrame, origin: str) -> Table:
    frame = frame.assign(
        Gender=np.where(frame["Gender"] == 1, "male", "female"),
        sepsis=np.where(frame["SepsisLabel"] == 1, "sepsis", "no sepsis"),
    ).drop(columns="SepsisLabel")
    return Table(
        sites=split_by_site(frame, "hospital"),
        target="sepsis",
        origin=origin,
        task="classification",
        positive="sepsis",
        groups=("Gender",),
    )


def _worst(hours: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    grouped = hours.groupby(keys, observed=True)
    highest, lowest, last = grouped.max(), grouped.min(), grouped[list(OF_THE_PATIENT)].last()
    columns: dict[str, Any] = {}
    for name in highest.columns:
        if name in OF_THE_PATIENT:
            columns[name] = last[name]
        elif name in LOW:
            columns[name] = lowest[name]
        elif name in BOTH:
            too_high, too_low = highest[name] - BOTH[name], BOTH[name] - lowest[name]
            columns[name] = highest[name].where(~(too_low > too_high), lowest[name])
        else:
            columns[name] = highest[name]
    return pd.DataFrame(columns)


def _balanced(path: Path, draw: int) -> pd.DataFrame:
    """As many hours before sepsis as others, a column at a time: memory holds no second copy of all hours."""
    keys = pd.read_parquet(path, columns=["hospital", "patient", "SepsisLabel"])
    # Rows of a patient stand together: where each stay begins.
    begins = np.flatnonzero(np.diff(keys["patient"].to_numpy(np.int64), prepend=-1) != 0)
    start = np.repeat(begins, np.diff(np.append(begins, len(keys))))
    ill = np.flatnonzero(keys["SepsisLabel"] == 1)
    well = np.flatnonzero(keys["SepsisLabel"] == 0)
    chosen = np.sort(np.concatenate([ill, np.random.default_rng((draw, 0x5E9)).choice(well, len(ill), replace=False)]))
    place = np.arange(len(keys))
    columns: dict[str, Any] = {name: keys[name].to_numpy()[chosen] for name in keys.columns}
    held = pd.read_parquet(path, columns=list(THESIS))
    for name in THESIS:
        values = held[name].to_numpy()
        last = np.maximum.accumulate(np.where(np.isnan(values), 0, place))
        columns[name] = np.where(last >= start, values[last], np.nan)[chosen]
        if name in ("MAP", "Resp"):
            columns[f"{name}_deviation"] = _deviation_so_far(values, start)[chosen]
    return pd.DataFrame(columns).assign(RR=60 / columns["HR"])


def _deviation_so_far(values: Values, start: Values) -> Values:
    """The standard deviation of what was measured since the stay began; missing before the second value."""
    known = ~np.isnan(values)
    number = np.where(known, values, 0.0).astype(np.float64)
    sums = []
    for one in (known.astype(np.float64), number, number**2):
        running = np.cumsum(one)
        sums.append(running - np.where(start > 0, running[start - 1], 0.0))
    count, total, square = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 1, np.sqrt(np.maximum(square - total**2 / count, 0) / (count - 1)), np.nan)
