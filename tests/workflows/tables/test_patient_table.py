"""Who was included, counted by hand; the table of patients as pandas computes it; nothing small is shown."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support import tiny_study as tiny
from wardround.data.table import Table
from wardround.queries.columns import Picture
from wardround.runs.clinical.patient_table import PatientFlow, PatientTable
from wardround.study import assemble
from wardround.study.file import read_study
from wardround.workflows.patient_table import patient_table, patients_of


def told(folder: Path, frame: pd.DataFrame, seed: int = 1, **tables: Any) -> tuple[PatientFlow, PatientTable | None]:
    study = read_study(tiny.write_study(folder, frame, **tables))
    found = patients_of(study, assemble.load_setting(study, seed))
    return found["flow"], found.get("patient_table")


def described() -> pd.DataFrame:
    """30 patients at each of four hospitals; at bo 4 have no outcome, 5 no age, and 3 smoke; elsewhere half do."""
    frame = tiny.patients(30)
    frame["smoker"] = np.where(np.arange(120) % 2, "yes", "no")
    frame.loc[:29, "smoker"] = ["yes"] * 3 + ["no"] * 27
    frame.loc[20:24, "age"] = np.nan
    frame["outcome"] = frame["outcome"].astype("Int64")
    frame.loc[26:29, "outcome"] = pd.NA
    return frame


def test_rows_read_are_rows_left_out_and_used(tmp_path: Path) -> None:
    flow, _ = told(tmp_path, described(), data={"missing_target": "drop"})
    assert flow.all.plain() == {"read": 120, "without_outcome": 4, "left_out": 0, "used": 116}
    assert flow.sites["bo"].plain() == {"read": 30, "without_outcome": 4, "left_out": 0, "used": 26}
    assert flow.sites["kenema"].plain() == {"read": 30, "without_outcome": 0, "left_out": 0, "used": 30}


def test_rows_that_cleaning_leaves_out_were_read(tmp_path: Path) -> None:
    cleaning = {"drop_rows": {"smoker": ["yes"]}}
    flow, _ = told(tmp_path, described(), data={"missing_target": "drop", "cleaning": cleaning})
    # At bo 3 smoke, all with an outcome; at the others 15 of 30.
    assert flow.sites["bo"].plain() == {"read": 30, "without_outcome": 4, "left_out": 3, "used": 23}
    assert flow.sites["kenema"].plain() == {"read": 30, "without_outcome": 0, "left_out": 15, "used": 15}


def test_few_rows_left_out_are_not_told(tmp_path: Path) -> None:
    data = {"missing_target": "drop", "preparation": {"smallest_cell": 5}}
    flow, _ = told(tmp_path, described(), data=data)
    # 4 at bo: not there, and not in the total, from which the zeros of the others would give them away.
    assert flow.sites["bo"].plain() == {"used": 26}
    assert flow.sites["kenema"].plain() == {"read": 30, "without_outcome": 0, "left_out": 0, "used": 30}
    assert flow.all.plain() == {"used": 116}
    frame = described()
    frame.loc[36:39, "outcome"] = pd.NA
    flow, _ = told(tmp_path, frame, data=data)
    assert flow.all.plain() == {"read": 120, "without_outcome": 8, "left_out": 0, "used": 112}, "8 of two hospitals"
    assert [name for name, one in flow.sites.items() if one.read is None] == ["bo", "freetown"]


def test_rows_dealt_out_anew_are_counted_over_all(tmp_path: Path) -> None:
    partition = {"name": "iid", "sites": 3}
    flow, patient_table = told(tmp_path, described(), data={"missing_target": "drop", "partition": partition})
    assert flow.all.plain() == {"read": 120, "without_outcome": 4, "left_out": 0, "used": 116}
    assert {name: one.read for name, one in flow.sites.items()} == dict.fromkeys(("site-1", "site-2", "site-3"))
    assert sum(one.used or 0 for one in flow.sites.values()) == 116
    assert patient_table is not None
    assert patient_table.patients == 116


def test_the_table_is_what_pandas_says(tmp_path: Path) -> None:
    frame = described()
    _, patient_table = told(tmp_path, frame, data={"missing_target": "drop"})
    assert patient_table is not None
    known = frame[frame["outcome"].notna()]
    assert [column.name for column in patient_table.columns] == ["outcome", "age", "pulse", "lactate", "smoker"]
    assert patient_table.columns[0].outcome
    assert patient_table.columns[0].levels == ("0", "1")
    assert patient_table.columns[0].all.counts == tuple(known["outcome"].astype(int).value_counts().sort_index())
    age = patient_table.columns[1]
    for name, rows in [("all", known), *known.groupby("hospital")]:
        cell = age.all if name == "all" else age.sites[str(name)]
        low, median, high = rows["age"].quantile([0.25, 0.5, 0.75])
        assert (cell.low, cell.median, cell.high) == pytest.approx((low, median, high))
        assert cell.missing == rows["age"].isna().sum()
    smoker = patient_table.columns[-1]
    assert dict(zip(smoker.levels, smoker.sites["bo"].counts, strict=True)) == {"no": 23, "yes": 3}
    assert patient_table.sites == {name: (known["hospital"] == name).sum() for name in tiny.HOSPITALS}


def test_small_counts_are_hidden_with_what_would_tell_them(tmp_path: Path) -> None:
    data = {"missing_target": "drop", "preparation": {"smallest_cell": 10}}
    _, patient_table = told(tmp_path, described(), data=data)
    assert patient_table is not None
    smoker = {one.name: one for one in patient_table.columns}["smoker"]
    # 3 smokers at bo: their 23 others would give them away, and so would the smokers of a second hospital.
    assert smoker.sites["bo"].counts == (None, None)
    hidden = [name for name, one in smoker.sites.items() if None in one.counts]
    assert len(hidden) == 2
    assert smoker.all.counts == (68, 48)
    age = {one.name: one for one in patient_table.columns}["age"]
    assert age.sites["bo"].missing is None
    assert age.all.missing is None
    assert age.sites["bo"].median is not None


def test_codes_are_counted_and_long_lists_are_cut(tmp_path: Path) -> None:
    frame = tiny.patients(30)
    frame["ward"] = [f"w{i % 20:02}" for i in range(120)]
    frame["stage"] = np.arange(120) % 3
    _, patient_table = told(tmp_path, frame)
    assert patient_table is not None
    columns = {one.name: one for one in patient_table.columns}
    assert columns["ward"].levels == (*(f"w{i:02}" for i in range(7)), "other")
    assert (columns["ward"].further_levels, columns["ward"].all.counts) == (13, (*[6] * 7, 78))
    assert (columns["stage"].kind, columns["stage"].levels) == ("text", ("0", "1", "2")), "a code is no quantity"


def test_many_sites_have_one_column_and_other_splits_none(tmp_path: Path) -> None:
    flow, patient_table = told(tmp_path, tiny.patients(60), data={"partition": {"name": "iid", "sites": 20}})
    assert patient_table is not None
    assert (patient_table.sites, patient_table.sites_left_out) == ({}, 20)
    assert all(column.sites == {} for column in patient_table.columns)
    assert len(flow.sites) == 20
    assert told(tmp_path, tiny.patients(30), seed=2)[1] is None, "only the first split keeps its rows"


def test_a_private_study_describes_nobody(tmp_path: Path) -> None:
    flow, patient_table = told(tmp_path, tiny.patients(30), privacy={"epsilon": 3.0, "delta": 1e-5})
    assert patient_table is None
    assert flow.all.plain() == {"used": 120}


def test_pixels_are_no_column_of_the_table() -> None:
    pictures = pd.Series([Picture(np.full((2, 2, 1), at, np.uint8)) for at in range(3)], dtype=object)
    frame = pd.DataFrame({"finding": ["no", "yes", "no"], "image": pictures})
    made = patient_table(Table({"bo": frame}, "finding", "here"), ("no", "yes"), 1)
    assert [column.name for column in made.columns] == ["finding"]
    masks = pd.DataFrame({"mask": pictures, "image": pictures})
    assert patient_table(Table({"bo": masks}, "mask", "here"), (), 1).columns == ()
