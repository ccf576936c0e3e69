"""The published counts of tcga_brca."""

import pandas as pd
import pytest

from wardround.data.datasets.survival.tcga_brca import tcga_brca
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "tcga_brca").is_dir(), reason="the folder tcga_brca is not in WARDROUND_DATA"
)


def test_patients_sites_and_events() -> None:
    table = tcga_brca()
    rows = pd.concat(table.sites.values())
    # FLamby's table of centres: patients in training and test, deaths in both.
    assert {name: len(part) for name, part in table.sites.items()} == {
        "Canada": 51,
        "Europe": 162,
        "Midwest": 162,
        "Northeast": 311,
        "South": 196,
        "West": 206,
    }
    assert (len(rows), rows["died"].sum()) == (1088, 151)
    assert rows.groupby("split")["died"].sum().to_dict() == {"train": 119, "test": 32}
    assert not {"tss", "center", "region"} & set(rows.columns)
