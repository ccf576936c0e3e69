"""Dialysis: the published counts, and what "within" means."""

import pandas as pd
import pytest

from wardround.data.datasets.dialysis import dialysis
from wardround.data.folder import data_file, data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "los_and_multicentre_small").is_dir(),
    reason="the folder los_and_multicentre_small is not in WARDROUND_DATA",
)


def test_patients_centres_and_deaths() -> None:
    table = dialysis()
    assert len(table.sites) == 67
    rows = pd.concat(table.sites.values())
    assert len(rows) == 6_805
    assert round(float((rows["outcome"] == "died").mean()), 3) == 0.236
    assert set(rows.columns) == {"age", "begin", "disease", "outcome"}


def test_within_a_year_counts_early_deaths_and_leaves_out_the_lost() -> None:
    read = pd.read_csv(data_file("los_and_multicentre_small", "dialysis.csv.gz"))
    died = sum(1 for event, time in zip(read["event"], read["time"], strict=True) if event == 1 and time <= 12)
    lost = sum(1 for event, time in zip(read["event"], read["time"], strict=True) if event == 0 and time < 12)
    rows = pd.concat(dialysis(within=12).sites.values())
    assert (rows["outcome"] == "died").sum() == died
    assert len(rows) == 6_805 - lost
