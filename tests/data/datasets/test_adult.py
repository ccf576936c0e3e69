"""Adult: the published counts."""

import pytest

from wardround.data.datasets.adult import adult
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "uci_adult").is_dir(), reason="the folder uci_adult is not in WARDROUND_DATA"
)


def test_people_prevalence_groups_and_gaps() -> None:
    table = adult()
    rows = table.sites["all"]
    assert len(rows) == 48_842
    assert round(float((rows["income"] == table.positive).mean()), 4) == 0.2393
    assert rows["race"].value_counts().to_dict() == {
        "White": 41_762,
        "Black": 4_685,
        "Asian-Pac-Islander": 1_519,
        "Amer-Indian-Eskimo": 470,
        "Other": 406,
    }
    assert rows["sex"].value_counts().to_dict() == {"Male": 32_650, "Female": 16_192}
    gaps = rows.isna().sum()
    assert {name: int(count) for name, count in gaps.items() if count} == {
        "workclass": 2_799,
        "occupation": 2_809,
        "native_country": 857,
    }
    assert table.groups == ("race", "sex")
    assert not {"fnlwgt", "education", "split"} & set(rows.columns)


def test_complete_rows() -> None:
    assert len(adult(complete_rows=True).sites["all"]) == 45_222
