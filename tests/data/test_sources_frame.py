import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.sources.frame import frame

ROWS = pd.DataFrame({"h": [2, 1, 2], "age": [30, 40, 50], "y": ["a", "b", "a"]}, index=[7, 7, 9])


def test_one_frame_is_dealt_to_its_sites_and_left_unchanged() -> None:
    before = ROWS.copy()
    table = frame(ROWS, site="h", target="y", drop="age")  # type: ignore[arg-type]
    assert list(table.sites) == ["1", "2"]
    assert list(table.sites["2"].columns) == ["y"]
    assert list(table.sites["2"].index) == [0, 1]
    pd.testing.assert_frame_equal(ROWS, before)


def test_a_frame_a_site_keeps_the_order_given() -> None:
    table = frame({"Kenema": ROWS, "Bo": ROWS}, target="y", positive="b")
    assert list(table.sites) == ["Kenema", "Bo"]
    assert table.positive == "b"


def test_columns_without_a_name_or_with_the_same_name_are_refused() -> None:
    with pytest.raises(Refusal, match="has a name that is not text"):
        frame(pd.DataFrame({0: [1], "y": [1]}), target="y")
    twice = pd.DataFrame([[1, 2, 3]], columns=["a", "a", "y"])
    with pytest.raises(Refusal, match=r"'a' appears twice \(site Bo\)"):
        frame({"Bo": twice}, target="y")
