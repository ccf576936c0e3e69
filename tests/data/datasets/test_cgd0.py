"""Chronic granulomatous disease: the published counts, and that interferon helped."""

import pandas as pd
import pytest

from wardround.data.datasets.cgd0 import cgd0
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "los_and_multicentre_small").is_dir(),
    reason="the folder los_and_multicentre_small is not in WARDROUND_DATA",
)


def test_patients_centres_and_the_published_effect() -> None:
    table = cgd0()
    assert len(table.sites) == 13
    rows = pd.concat(table.sites.values())
    assert len(rows) == 128
    # The trial (NEJM 1991): infections in 14 of 63 with interferon and 30 of 65 with placebo.
    counts = pd.crosstab(rows["treatment"], rows["infection"])
    assert counts.to_dict("index") == {
        "interferon": {"infection": 14, "none": 63 - 14},
        "placebo": {"infection": 30, "none": 65 - 30},
    }
    assert not any("time" in column for column in rows.columns)
