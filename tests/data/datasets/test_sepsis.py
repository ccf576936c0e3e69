"""Sepsis: the published counts, and what last and worst mean, checked against the hours of one patient."""

import numpy as np
import pandas as pd
import pytest

from wardround.data.datasets.sepsis import sepsis
from wardround.data.folder import data_file, data_folder
from wardround.data.table import Table

pytestmark = pytest.mark.skipif(
    not (data_folder() / "cinc2019_sepsis").is_dir(), reason="the folder cinc2019_sepsis is not in WARDROUND_DATA"
)


@pytest.fixture(scope="module")
def last() -> Table:
    return sepsis()


def test_patients_and_septic_patients_of_both_hospitals(last: Table) -> None:
    assert {name: len(rows) for name, rows in last.sites.items()} == {"A": 20_336, "B": 20_000}
    septic = {name: int((rows["sepsis"] == "sepsis").sum()) for name, rows in last.sites.items()}
    assert septic == {"A": 1_790, "B": 1_142}
    assert not {"patient", "hospital", "ICULOS", "SepsisLabel"} & set(last.sites["A"].columns)


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


@pytest.mark.slow
def test_hours(last: Table) -> None:
    table = sepsis(rows="hours")
    assert {name: len(rows) for name, rows in table.sites.items()} == {"A": 790_215, "B": 761_995}
    positive = {name: int((rows["sepsis"] == "sepsis").sum()) for name, rows in table.sites.items()}
    assert positive == {"A": 17_136, "B": 10_780}
    assert table.sites["B"]["patient"].nunique() == 20_000
