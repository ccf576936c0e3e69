"""The published counts of datashield_survival."""

import pandas as pd
import pytest

from wardround.data.datasets.survival.datashield_survival import datashield_survival
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "datashield_cnsim").is_dir(), reason="the folder datashield_cnsim is not in WARDROUND_DATA"
)


def test_patients_sites_and_events() -> None:
    table = datashield_survival()
    counts = {name: (len(rows), int(rows["failed"].sum())) for name, rows in table.sites.items()}
    assert counts == {"study-1": (886, 426), "study-2": (659, 300), "study-3": (1167, 578)}
    rows = pd.concat(table.sites.values())
    assert 0 < rows["years"].min() <= rows["years"].max() == 10
