"""The published counts of rotterdam_gbsg."""

import pandas as pd
import pytest

from wardround.data.datasets.survival.rotterdam_gbsg import rotterdam_gbsg
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "multicentre_small").is_dir(), reason="the folder multicentre_small is not in WARDROUND_DATA"
)


def test_patients_sites_and_events() -> None:
    table = rotterdam_gbsg()
    # Royston and Altman: 1,713 events in Rotterdam, 299 of 686 in the trial.
    counts = {name: (len(rows), int(rows["recurred"].sum())) for name, rows in table.sites.items()}
    assert counts == {"rotterdam": (2982, 1713), "gbsg": (686, 299)}
    one, two = table.sites.values()
    assert list(one.columns) == list(two.columns)
    assert set(one["size"]) == set(two["size"]) == {"<=20", "20-50", ">50"}
    assert not pd.concat([one, two]).isna().any().any()
