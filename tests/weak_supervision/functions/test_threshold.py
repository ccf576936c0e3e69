import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.weak_supervision.function import votes_of
from wardround.weak_supervision.functions.threshold import threshold

ROWS = pd.DataFrame({"age": [40.0, 65.0, np.nan], "ward": ["a", None, "b"]})


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("age > 40", [0, 1, 0]),
        ("age >= 40", [1, 1, 0]),
        ("age < 65", [1, 0, 0]),
        ("age <= 65", [1, 1, 0]),
        ("age = 65", [0, 1, 0]),
        ("age != 65", [1, 0, 0]),
        ("ward = a", [1, 0, 0]),
        ("ward != a", [0, 0, 1]),
    ],
)
def test_every_sign(condition, rows):
    assert votes_of([threshold(condition=condition, label="x")], ROWS)[:, 0].tolist() == [bool(one) for one in rows]


def test_many_at_once_are_what_each_is_alone():
    rules = [threshold(condition=f"age {sign} {bound}", label="x") for sign in ("<", ">=") for bound in (40, 50, 65)]
    together = votes_of(rules, ROWS)
    assert np.array_equal(together, np.hstack([votes_of([one], ROWS) for one in rules]))


def test_words_are_not_compared_with_numbers():
    with pytest.raises(Refusal, match="compares 'ward' with a number, and the column holds text"):
        votes_of([threshold(condition="ward > 3", label="x")], ROWS)
