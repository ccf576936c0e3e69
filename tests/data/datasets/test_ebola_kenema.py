"""Ebola at Kenema: the published counts, and no gap that tells the diagnosis."""

import numpy as np
import pytest

from wardround.data.datasets.ebola_kenema import ebola_kenema
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "ebola_kenema").is_dir(), reason="the folder ebola_kenema is not in WARDROUND_DATA"
)


def test_outcomes_of_the_confirmed() -> None:
    rows = ebola_kenema().sites["all"]
    assert rows["OUT"].value_counts().to_dict() == {"died": 64, "discharged": 23}
    assert "DIAG" not in rows
    assert rows["AGE"].count() > 80


def test_a_diagnosis_cannot_be_told_from_the_gaps() -> None:
    rows = ebola_kenema(target="DIAG").sites["all"]
    # Of the 64 confirmed and 42 others with a panel, those whose age and sex are known.
    assert rows["DIAG"].value_counts().to_dict() == {"confirmed": 60, "excluded": 32}
    assert not {"OUT", "PCR_1", "FEVER", "TEMP"} & set(rows.columns)
    measured = rows.drop(columns="DIAG").notna().groupby(rows["DIAG"]).mean()
    difference = measured.to_numpy(float)[0] - measured.to_numpy(float)[1]
    assert np.abs(difference).max() < 0.15
