"""Declared columns ask nothing; noised statistics come near the exact ones where there are many patients."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.data.load import local_ask
from wardround.data.noised_preparation import StatisticsNoise
from wardround.data.preparation import Preparation
from wardround.data.preparation_fit import fit_preparation, statistics_asked

KINDS = {"age": "number", "sex": "text"}
DECLARED = {"ranges": {"age": [0.0, 100.0]}, "categories": {"sex": ["f", "m"]}}


def nobody(query, message):
    raise AssertionError("nothing may be asked")


def sites(rows: int = 20_000) -> list[Site]:
    generator = np.random.default_rng(0)
    age = generator.normal(40, 12, rows).clip(0, 99)
    frame = pd.DataFrame({"age": age, "sex": np.where(generator.random(rows) < 0.3, "f", "m")})
    frame.loc[0, "sex"] = "only me"
    frame.loc[:99, "age"] = np.nan
    return [Site("bo", frame[: rows // 2]), Site("kenema", frame[rows // 2 :])]


@pytest.mark.parametrize("private", [None, StatisticsNoise(5.0, 1e-6), StatisticsNoise(None)])
def test_declared_columns_are_clamped_and_scaled_and_nobody_is_asked(private) -> None:
    fitted, _ = fit_preparation(nobody, KINDS, private=private, **DECLARED)
    again = Preparation.from_json(fitted.to_json())
    assert again == fitted
    frame = pd.DataFrame({"age": [0.0, 50.0, 1e9, np.nan, -np.inf], "sex": ["f", "m", "x", None, "f"]})
    expected = [[-1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 1, 0]]
    np.testing.assert_array_equal(fitted.apply(frame), expected)


def test_under_privacy_all_columns_are_declared_or_none() -> None:
    with pytest.raises(Refusal, match="nothing may be asked about sex"):
        fit_preparation(nobody, KINDS, ranges=DECLARED["ranges"], private=StatisticsNoise(5.0, 1e-6))
    with pytest.raises(Refusal, match="nothing may be asked about age, sex"):
        fit_preparation(nobody, KINDS, private=StatisticsNoise(None))
    with pytest.raises(Refusal, match="'agee' is declared and not among those"):
        fit_preparation(nobody, KINDS, ranges={"agee": [0, 1]})
    with pytest.raises(Refusal, match="holds words and has an entry under ranges"):
        fit_preparation(nobody, KINDS, ranges={"age": [0, 1], "sex": [0, 1]}, private=StatisticsNoise(None))


def test_noised_statistics_come_near_the_truth_and_name_nobody() -> None:
    """20,000 patients, noise 20 sqrt(2) a count and 20 sqrt(3) a sum: means to a hundredth of the range."""
    fitted, remarks = fit_preparation(local_ask(sites()), KINDS, private=StatisticsNoise(20.0, 1e-6, seed=1))
    age, sex = fitted.columns
    assert sex.categories == ("f", "m")
    assert sex.fill == "m"
    assert (age.low, age.high) == (pytest.approx(8, abs=8), 128.0)
    assert age.fill == pytest.approx(40, abs=1)
    assert age.scale == pytest.approx(12, abs=1.5)
    assert "noised mean" in remarks[0]


def test_statistics_that_the_noise_hides_are_refused_by_name() -> None:
    with pytest.raises(Refusal, match=r"hides the statistics of age, sex.*declare ranges"):
        fit_preparation(local_ask(sites(60)), KINDS, private=StatisticsNoise(100.0, 1e-6, seed=1))


def test_what_is_asked_of_a_private_study_is_noised_or_nothing() -> None:
    asked = {"impute": "median", "scale": "standard", "smallest_cell": 10, "private": True}
    assert [one.name for one in statistics_asked(**asked)] == ["cards", "noised_counts", "noised_moments"]
    assert [one.name for one in statistics_asked(**asked, declared=True)] == ["cards"]
