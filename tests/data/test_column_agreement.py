"""What sites agree that their columns are; every misfit is refused by its name."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.data.column_agreement import agree_on_columns, columns_of_analysis, no_rows, rows_of_analysis
from wardround.data.query import ask_all


def agreed(frames, columns, cell=1, declared=None, **more):
    sites = [Site(name, columns_of_analysis(pd.DataFrame(frame), columns, name)) for name, frame in frames.items()]
    found = agree_on_columns(
        lambda query, message: ask_all(query, message, sites),
        list(frames),
        columns,
        declared=declared or {},
        smallest_cell=cell,
        **more,
    )
    return Agreed(tuple(frames), found), sites


def test_numbers_flags_and_words_of_all_sites():
    frames = {
        "A": {"age": [1, 2], "ill": [True, False], "sex": ["m", None], "empty": [None, None]},
        "B": {"age": [1.5, None], "ill": [1, 0], "sex": ["f", "f"], "empty": [3.0, None]},
    }
    found, sites = agreed(frames, ("age", "ill", "sex", "empty"))
    number = AgreedColumn("number")
    assert found.columns == {"age": number, "ill": number, "sex": AgreedColumn("category", ("f", "m")), "empty": number}
    rows = rows_of_analysis(sites[0], found).table
    assert rows["ill"].tolist() == [1.0, 0.0]
    assert (rows["sex"][0], rows["sex"].isna().tolist()) == ("m", [False, True])
    assert (list(no_rows(found).table.columns), len(no_rows(found).table)) == (list(rows.columns), 0)


def test_words_that_are_rare_everywhere_are_unknown():
    frames = {"A": {"ward": ["a"] * 5 + ["b"]}, "B": {"ward": ["b"] * 2 + ["a"] * 2}}
    found, sites = agreed(frames, ("ward",), cell=3)
    assert found.columns["ward"].levels == ("a",)
    assert rows_of_analysis(sites[0], found).table["ward"].isna().tolist() == [False] * 5 + [True]


def test_declared_words_are_not_asked_for():
    found, _ = agreed({"A": {"ward": ["a"]}}, ("ward",), cell=50, declared={"ward": ["b", "a"]}, private=True)
    assert found.columns["ward"].levels == ("b", "a")


@pytest.mark.parametrize(
    ("frames", "match"),
    [
        ({"A": {"x": [1.0]}, "B": {"y": [1.0]}}, "column 'x' is missing"),
        ({"A": {"x": [1.0]}, "B": {"x": ["a"]}}, "does not hold the same everywhere: numbers at A, words at B"),
        ({"A": {"x": [None]}, "B": {"x": [None]}}, "has no value at any site"),
        ({"A": {"x": [np.inf]}}, "holds infinite values"),
        ({"A": {"x": [1, "a"]}}, "a mixture of text and numbers"),
        ({"A": {"x": pd.to_datetime(["2020-01-01"])}}, "holds dates or times"),
        ({"A": {"x": [f"name {n}" for n in range(60)]}}, "or more than 50 different ones"),
    ],
)
def test_misfits_are_refused_by_name(frames, match):
    with pytest.raises(Refusal, match=f"(?i){match}"):
        agreed(frames, ("x",))


def test_under_privacy_words_must_be_declared():
    with pytest.raises(Refusal, match="nobody is asked for"):
        agreed({"A": {"ward": ["a"]}}, ("ward",), private=True)
