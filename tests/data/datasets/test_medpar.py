"""Medpar: the published counts; what is known only afterwards is left out."""

import pandas as pd
import pytest

from wardround.data.datasets.medpar import medpar
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "los_and_multicentre_small").is_dir(),
    reason="the folder los_and_multicentre_small is not in WARDROUND_DATA",
)


def test_stays_and_hospitals() -> None:
    table = medpar(least=1)
    assert len(table.sites) == 54
    rows = pd.concat(table.sites.values())
    assert len(rows) == 1_495
    assert table.task == "regression"
    assert set(rows.columns) == {"hmo", "race", "age80", "admission", "los"}
    # The first row of the file: 4 days, elective, at hospital 30001.
    assert table.sites["hospital-30001"].iloc[0].to_dict() == {
        "hmo": "no",
        "race": "white",
        "age80": "under 80",
        "admission": "elective",
        "los": 4.0,
    }


def test_death_as_a_target() -> None:
    rows = pd.concat(medpar(target="died", least=1).sites.values())
    assert (rows["died"] == "died").sum() == 513
    assert "los" not in rows


def test_small_hospitals_are_left_out_as_asked() -> None:
    sizes = [len(rows) for rows in medpar(least=20).sites.values()]
    assert min(sizes) >= 20
    assert len(sizes) < len(medpar().sites) < 54
