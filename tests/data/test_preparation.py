import json

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, Preparation, TextColumn

PREPARATION = Preparation(
    (
        NumberColumn("age", fill=40.0, center=50.0, scale=10.0, indicator=True),
        TextColumn("sex", ("f", "m"), fill="m", indicator=True),
        NumberColumn("never known", scale=0.0),
        TextColumn("ward", ("1", "2")),
    )
)
FRAME = pd.DataFrame(
    {
        "ward": [1.0, 2.0, np.nan],
        "age": [70, None, 45],
        "never known": [None, 7.0, None],
        "ignored": ["x", "y", "z"],
        "sex": ["f", None, "other"],
    }
)


def test_matrix_by_hand() -> None:
    # age: (70-50)/10, missing -> (40-50)/10 with indicator, (45-50)/10.
    # sex: f; missing -> m with indicator; unknown -> 0 0.
    # A ward known as text is recognised in numbers too; missing without a fill is all zeros.
    expected = [
        [2.0, 0, 1, 0, 0, 0, 1, 0],
        [-1.0, 1, 0, 1, 1, 0, 0, 1],
        [-0.5, 0, 0, 0, 0, 0, 0, 0],
    ]
    x = PREPARATION.apply(FRAME)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, np.array(expected, np.float32))
    assert PREPARATION.features == (
        "age",
        "age missing",
        "sex=f",
        "sex=m",
        "sex missing",
        "never known",
        "ward=1",
        "ward=2",
    )


def test_frame_is_left_unchanged() -> None:
    before = FRAME.copy()
    PREPARATION.apply(FRAME)
    pd.testing.assert_frame_equal(FRAME, before)


def test_no_rows_give_no_rows() -> None:
    assert PREPARATION.apply(FRAME.iloc[:0]).shape == (0, 8)


def test_json_and_back_is_the_same_to_the_bit() -> None:
    awkward = Preparation((NumberColumn("größe", 1 / 3, 1e-300, np.nextafter(1.0, 2.0)), *PREPARATION.columns))
    text = awkward.to_json()
    assert Preparation.from_json(text) == awkward
    assert json.loads(text)["columns"][1]["kind"] == "number"


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"format": "another", "columns": []}',
        '{"format": "wardround preparation 1"}',
        '{"format": "wardround preparation 1", "columns": [{"kind": "number", "name": "a", "indicator": false}]}',
        '{"format": "wardround preparation 1", "columns": [{"kind": "number", "name": "a", "indicator": false,'
        ' "fill": 0, "center": 0, "scale": NaN}]}',
        '{"format": "wardround preparation 1", "columns": [{"kind": "text", "name": "a", "indicator": false,'
        ' "fill": null, "categories": [1]}]}',
        '{"format": "wardround preparation 1", "columns": [{"kind": "code", "name": "a", "indicator": false,'
        ' "fill": null, "categories": []}]}',
        '{"format": "wardround preparation 1", "columns": [{"kind": "text", "name": "a", "indicator": false,'
        ' "fill": null, "categories": "fm"}]}',
    ],
)
def test_json_that_is_no_preparation_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="not a preparation"):
        Preparation.from_json(text)


def test_what_a_site_cannot_apply_is_refused_by_name() -> None:
    with pytest.raises(Refusal, match=r"'age' is missing; did you mean 'Age'\? \(site Bo\)"):
        PREPARATION.apply(FRAME.rename(columns={"age": "Age"}), where="site Bo")
    with pytest.raises(Refusal, match=r"'age' holds text but numbers were expected \(site Bo\)"):
        PREPARATION.apply(FRAME.assign(age=["70", "old", "45"]), where="site Bo")
    with pytest.raises(Refusal, match="'age' holds infinite"):
        PREPARATION.apply(FRAME.assign(age=[np.inf, 1, 2]))
