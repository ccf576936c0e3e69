"""Sepsis in intensive care at two hospital systems, A and B.

Reyna et al., "Early Prediction of Sepsis from Clinical Data: The PhysioNet/Computing in Cardiology Challenge 2019",
Critical Care Medicine 2020 (CC BY 4.0): 40,336 patients, 1,552,210 hours. Needs the folder cinc2019_sepsis, and about
700 MB of memory while it reads.

`rows` "last" gives one row a patient: the last value measured of every column. "worst" takes instead the value farthest
from the usual one in the direction in which the column is dangerous (LOW: the lowest; BOTH: the one farthest from the
middle of the normal range; else the highest). The target is then whether the patient ever becomes septic. "hours" gives
one row an hour, with the challenge's label (1 from six hours before the onset) as target and the patient's number kept,
so that no patient need be in two parts. The hour in intensive care (ICULOS) is a feature of an hour but not of a
patient, where it would be the length of the stay, known only afterwards.
"""

from typing import Any, Literal

import numpy as np
import pandas as pd

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
OF_THE_PATIENT = ("Age", "Gender", "Unit1", "Unit2", "HospAdmTime")


def sepsis(*, rows: Literal["last", "worst", "hours"] = "last") -> Table:
    """Sepsis among 40,336 intensive-care patients of two hospital systems (one row per patient, or per hour)."""
    path = data_file("cinc2019_sepsis", "sepsis_A_B.parquet")
    hours = pd.read_parquet(path)
    if rows == "hours":
        frame = hours
    else:
        hours = hours.drop(columns="ICULOS")
        keys = ["hospital", "patient"]
        ever = hours.groupby(keys, observed=True)["SepsisLabel"].max()
        frame = _worst(hours, keys) if rows == "worst" else hours.groupby(keys, observed=True).last()
        frame = frame.assign(SepsisLabel=ever).reset_index().drop(columns="patient")
    frame = frame.assign(
        Gender=np.where(frame["Gender"] == 1, "male", "female"),
        sepsis=np.where(frame["SepsisLabel"] == 1, "sepsis", "no sepsis"),
    ).drop(columns="SepsisLabel")
    return Table(
        sites=split_by_site(frame, "hospital"),
        target="sepsis",
        origin=path.name,
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
