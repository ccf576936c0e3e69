"""Heart disease: the published counts, and the 740 patients of the FLamby benchmark."""

import pandas as pd
import pytest

from wardround.data.datasets.heart_disease import heart_disease
from wardround.data.folder import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "uci_heart_disease").is_dir(), reason="the folder uci_heart_disease is not in WARDROUND_DATA"
)


def test_patients_and_prevalence_of_the_four_hospitals() -> None:
    table = heart_disease()
    assert {name: len(rows) for name, rows in table.sites.items()} == {
        "cleveland": 303,
        "hungarian": 294,
        "switzerland": 123,
        "va": 200,
    }
    ill = {name: round(float((rows["disease"] == "disease").mean()), 3) for name, rows in table.sites.items()}
    assert ill == {"cleveland": 0.459, "hungarian": 0.361, "switzerland": 0.935, "va": 0.745}
    assert table.positive == "disease"


def test_gaps_are_those_published() -> None:
    table = heart_disease(complete_columns=False, zero_chol_missing=False)
    gaps = pd.concat(table.sites.values()).isna().sum()
    published = {"slope": 309, "ca": 611, "thal": 486, "fbs": 90, "oldpeak": 62, "trestbps": 59}
    published |= {"thalach": 55, "exang": 55, "chol": 30, "restecg": 2}
    assert {name: int(count) for name, count in gaps.items() if count} == published


def test_a_cholesterol_of_zero_is_a_gap() -> None:
    table = heart_disease()
    assert table.sites["switzerland"]["chol"].isna().all()
    assert all((rows["chol"].dropna() > 0).all() for rows in table.sites.values())


def test_complete_rows_are_those_of_flamby() -> None:
    table = heart_disease(complete_rows=True, zero_chol_missing=False)
    assert [len(rows) for rows in table.sites.values()] == [303, 261, 46, 130]
    assert not any(rows.isna().any().any() for rows in table.sites.values())


def test_columns_that_hardly_anybody_recorded_are_left_out_unless_asked_for() -> None:
    assert not {"slope", "ca", "thal", "num", "hospital"} & set(heart_disease().sites["va"].columns)
    assert {"slope", "ca", "thal"} <= set(heart_disease(complete_columns=False).sites["va"].columns)


def test_codes_became_words() -> None:
    # The first patient of the file: a man of 63 with typical angina (cp 1), hypertrophy (restecg 2), num 0.
    first = heart_disease().sites["cleveland"].iloc[0]
    assert (first["age"], first["sex"], first["cp"]) == (63, "male", "typical angina")
    assert (first["restecg"], first["disease"]) == ("left ventricular hypertrophy", "no disease")
