"""Counts of categories by hand; rare ones are not named, and lists of values are refused."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.codes.json_arrays import unpack
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.data.query import ask_all
from wardround.queries.category_counts import category_counts

A = Site("A", pd.DataFrame({"v": [1.0, 3.0, np.nan], "t": ["x", "x", "y"]}))
B = Site("B", pd.DataFrame({"v": [8.0, np.nan, np.nan], "t": ["y", None, "z"]}))
EMPTY = Site("C", A.table.iloc[:0])


def test_category_counts_by_hand() -> None:
    report = ask_all(category_counts(columns=["t"], most=3), Message({}), [A, B, EMPTY])
    assert report == {"counts": {"t": {"x": 2, "y": 2, "z": 1}}, "missing": [1]}


def test_rare_categories_are_withheld_at_the_site() -> None:
    query = category_counts(columns=["t"], most=3, smallest_cell=2)
    assert unpack(query.ask(Message({}), A).arrays["counts"]) == {"t": {"x": 2}}


def test_more_values_than_categories_may_have_are_refused_at_the_site() -> None:
    with pytest.raises(Refusal, match="more than 1 different values"):
        category_counts(columns=["t"], most=1).ask(Message({}), A)


def test_numbers_are_counted_as_they_are_written_without_a_point() -> None:
    told = ask_all(category_counts(columns=["v"], most=3, numbers=True), Message({}), [A, B])
    assert told == {"counts": {"v": {"1": 1, "3": 1, "8": 1}}, "missing": [3]}
