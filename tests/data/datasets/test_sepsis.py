"""Sepsis: the published counts, and what last and worst mean, checked against the hours of one patient."""

import numpy as np
import pandas as pd
import pytest

from wardround.data.datasets.sepsis import sepsis
from wardround.data.folder import VARIABLE, data_file, data_folder
from wardround.data.table import Table

REAL = pytest.mark.skipif(
    not (data_folder() / "cinc2019_sepsis").is_dir(), reason="the folder cinc2019_sepsis is not in WARDROUND_DATA"
)
NONE = float("nan")
HOURS = pd.DataFrame(
    {
        "hospital": ["A", "A", "A", "B", "B"],
        "patient": [1, 1, 1, 2, 2],
        "HR": [80.0, 120.0, NONE, 70.0, 60.0],
        "SBP": [90.0, 70.0, 110.0, NONE, 130.0],
        "Temp": [36.0, 37.5, NONE, 39.0, 35.5],
        "ICULOS": [1, 2, 3, 1, 2],
        "SepsisLabel": [0, 1, 0, 0, 0],
        "Age": [61.0] * 3 + [40.0] * 2,
        "Gender": [1, 1, 1, 0, 0],
        "Unit1": [1.0] * 5,
        "Unit2": [0.0] * 5,
        "HospAdmTime": [-1.0] * 5,
    }
)
"""Two patients, three hours and two: what `last` and `worst` make of them is seen at a glance."""


@pytest.fixture(scope="module")
def last() -> Table:
    return sepsis()


@pytest.mark.parametrize(
    ("rows", "first", "second"),
    [("last", (120.0, 110.0, 37.5), (60.0, 130.0, 35.5)), ("worst", (120.0, 70.0, 36.0), (70.0, 130.0, 39.0))],
)
def test_last_and_worst_by_hand(tmp_path, monkeypatch, rows, first, second) -> None:
    """36.0 is a degree from 37 and 37.5 half of one; 39.0 is two and 35.5 one and a half."""
    (tmp_path / "cinc2019_sepsis").mkdir()
    HOURS.to_parquet(tmp_path / "cinc2019_sepsis" / "sepsis_A_B.parquet")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    table = sepsis(rows=rows)
    for site, values, outcome in (("A", first, "sepsis"), ("B", second, "no sepsis")):
        (row,) = table.sites[site].to_dict("records")
        assert tuple(row[name] for name in ("HR", "SBP", "Temp")) == values
        assert row["sepsis"] == outcome
        assert not {"patient", "hospital", "ICULOS", "SepsisLabel"} & row.keys()


@REAL
def test_patients_and_septic_patients_of_both_hospitals(last: Table) -> None:
    assert {name: len(rows) for name, rows in last.sites.items()} == {"A": 20_336, "B": 20_000}
    septic = {name: int((rows["sepsis"] == "sepsis").sum()) for name, rows in last.sites.items()}
    assert septic == {"A": 1_790, "B": 1_142}
    assert not {"patient", "hospital", "ICULOS", "SepsisLabel"} & set(last.sites["A"].columns)


@REAL
def test_last_and_worst_values_of_the_first_patient(last: Table) -> None:
    path = data_file("cinc2019_sepsis", "sepsis_A_B.parquet")
    hours = pd.read_parquet(path, filters=[("hospital", "==", "A"), ("patient", "==", 1)])
    for column in ("HR", "Temp", "Glucose"):
        assert last.sites["A"][column].iloc[0] == hours[column].dropna().iloc[-1]
    worst = sepsis(rows="worst").sites["A"].iloc[0]
    assert worst["HR"] == hours["HR"].max()
    assert worst["SBP"] == hours["SBP"].min()
    temperatures = hours["Temp"].dropna().to_numpy()
    assert worst["Temp"] == temperatures[np.argmax(np.abs(temperatures - 37.0))]
    assert worst["Age"] == hours["Age"].iloc[0]


@REAL
@pytest.mark.slow
def test_hours(last: Table) -> None:
    table = sepsis(rows="hours")
    assert {name: len(rows) for name, rows in table.sites.items()} == {"A": 790_215, "B": 761_995}
    positive = {name: int((rows["sepsis"] == "sepsis").sum()) for name, rows in table.sites.items()}
    assert positive == {"A": 17_136, "B": 10_780}
    assert table.sites["B"]["patient"].nunique() == 20_000


@REAL
@pytest.mark.slow
def test_balanced_hours_are_those_of_the_thesis():
    # Caldas 2022, 3.3.1: 55.8 thousand instances, half of them positive; RR of its patient A (HR 51) is 1.17647.
    table = sepsis(rows="balanced")
    rows = pd.concat(list(table.sites.values()))
    assert len(rows) == 55_832
    assert (rows["sepsis"] == "sepsis").sum() == 27_916
    assert rows.loc[rows["HR"] == 51, "RR"].unique().tolist() == pytest.approx([1.17647], abs=5e-6)
    assert len(sepsis(rows="balanced", draw=1).sites["A"]) != len(table.sites["A"])
