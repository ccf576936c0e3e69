import numpy as np
import pandas as pd
import pytest

from tests.support.findings import agreed_on
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.statistics.selection.conditions import check_conditions, meets, read_conditions

TABLE = pd.DataFrame(
    {"age": [30.0, np.nan, 60.0, 75.0], "blood group": ["A", "B", None, "A"], "sex": ["male", "male", "female", "male"]}
)
SITE = Site("A", TABLE)
AGREED = agreed_on([SITE])


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", [1, 1, 1, 1]),
        ("age >= 60", [0, 0, 1, 1]),
        ("age != 60", [1, 0, 0, 1]),
        ("age < 75 AND sex = male", [1, 0, 0, 0]),
        ("'blood group' != B", [1, 0, 0, 1]),
        ('sex == "female"', [0, 0, 1, 0]),
        ("age<=60", [1, 0, 1, 0]),
    ],
)
def test_who_meets_it(text, kept):
    conditions = read_conditions(text)
    check_conditions(conditions, AGREED)
    np.testing.assert_array_equal(meets(conditions, AGREED, SITE), np.array(kept, bool))


@pytest.mark.parametrize(
    "text",
    ["age", "age >", "age > 3 or sex = male", "__import__('os')", "age > 3; sex = male", "f(age) > 3", "1 < age < 3"],
)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(Refusal, match=r"cannot be read|There is no column"):
        check_conditions(read_conditions(text), AGREED)
