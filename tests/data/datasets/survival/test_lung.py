"""The published counts of lung."""

import pandas as pd
import pytest

from wardround.data.datasets.survival.lung import lung
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "multicentre_small").is_dir(), reason="the folder multicentre_small is not in WARDROUND_DATA"
)


def test_patients_sites_and_events() -> None:
    table = lung()
    rows = pd.concat(table.sites.values())
    assert len(table.sites) == 18
    # R: 228 patients, 165 deaths; the one without an institution died.
    assert (len(rows), rows["died"].sum()) == (227, 164)
    assert rows.groupby("sex")["died"].agg(["size", "sum"]).to_dict("index") == {
        "man": {"size": 137, "sum": 111},
        "woman": {"size": 90, "sum": 53},
    }
