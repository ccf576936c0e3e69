"""Titanic: the published counts, and nothing that tells the outcome."""

import pytest

from wardround.data.datasets.titanic import titanic
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "titanic").is_dir(), reason="the folder titanic is not in WARDROUND_DATA"
)


def test_passengers_survival_and_gaps() -> None:
    rows = titanic().sites["all"]
    assert len(rows) == 1_309
    assert round(float((rows["survived"] == "survived").mean()), 3) == 0.382
    assert rows["age"].isna().sum() == 263
    assert list(rows.columns) == ["pclass", "survived", "sex", "age", "sibsp", "parch", "fare", "embarked"]


def test_age_as_a_target_is_a_regression_without_survival() -> None:
    table = titanic(target="age")
    assert table.task == "regression"
    assert len(table.sites["all"]) == 1_309 - 263
    assert "survived" not in table.sites["all"]
