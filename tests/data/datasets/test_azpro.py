"""Azpro: the published counts."""

import pandas as pd
import pytest

from wardround.data.datasets.azpro import azpro
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "los_and_multicentre_small").is_dir(),
    reason="the folder los_and_multicentre_small is not in WARDROUND_DATA",
)


def test_procedures_and_hospitals() -> None:
    table = azpro()
    assert len(table.sites) == 17
    rows = pd.concat(table.sites.values())
    assert len(rows) == 3_589
    assert table.task == "regression"
    # A bypass keeps patients longer than an angioplasty; the first row of the file is a bypass with 67 days.
    stay = rows.groupby("procedure")["los"].mean()
    assert stay["bypass"] > 1.5 * stay["angioplasty"]
    first = table.sites["hospital-3.6"].iloc[0]
    assert (first["procedure"], first["sex"], first["admission"], first["los"]) == ("bypass", "female", "urgent", 67.0)
