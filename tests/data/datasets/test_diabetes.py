"""Diabetes: the published counts, values as measured."""

import pytest

from wardround.data.datasets.diabetes import diabetes


def test_patients_and_target() -> None:
    table = diabetes()
    rows = table.sites["all"]
    assert rows.shape == (442, 11)
    assert table.task == "regression"
    # Efron et al., table 1: the first patient is 59, body mass 32.1, progression 151; the mean is 152.1.
    assert rows.iloc[0][["age", "bmi", "progression"]].tolist() == [59.0, 32.1, 151.0]
    assert rows["progression"].mean() == pytest.approx(152.13, abs=0.01)
