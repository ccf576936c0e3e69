"""The indomethacin trial: the published counts, and that the drug helped."""

import pandas as pd
import pytest

from wardround.data.datasets.indo_rct import indo_rct
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "los_and_multicentre_small").is_dir(),
    reason="the folder los_and_multicentre_small is not in WARDROUND_DATA",
)


def test_patients_centres_and_outcomes() -> None:
    table = indo_rct()
    assert {name: len(rows) for name, rows in table.sites.items()} == {"UM": 164, "IU": 413, "UK": 22, "Case": 3}
    rows = pd.concat(table.sites.values())
    assert rows["outcome"].value_counts().to_dict() == {"no": 523, "yes": 79}
    assert not {"id", "bleed", "site"} & set(rows.columns)
    assert rows["asa"].isna().sum() == 1
    assert rows.isna().sum().sum() == 3


def test_the_published_effect_of_the_drug() -> None:
    # Elmunzer 2012: pancreatitis in 27 of 295 with indomethacin (9.2 %), 52 of 307 with placebo (16.9 %).
    rows = pd.concat(indo_rct().sites.values())
    counts = pd.crosstab(rows["rx"], rows["outcome"])
    assert counts.to_dict("index") == {
        "indomethacin": {"yes": 27, "no": 295 - 27},
        "placebo": {"yes": 52, "no": 307 - 52},
    }


def test_tiny_centres_can_be_left_out() -> None:
    assert list(indo_rct(least=20).sites) == ["IU", "UK", "UM"]
