"""Means and spreads by hand, exact and in cells."""

import numpy as np
import pandas as pd

from tests.support.answers import numbers_of
from wardround.core.components.terms import Extent
from wardround.core.contracts import Message, Site
from wardround.data.query import ask_all
from wardround.queries.moments import TERMS, moments

A = Site("A", pd.DataFrame({"v": [1.0, 3.0, np.nan], "t": ["x", "x", "y"]}))
B = Site("B", pd.DataFrame({"v": [8.0, np.nan, np.nan], "t": ["y", None, "z"]}))
EMPTY = Site("C", A.table.iloc[:0])


def test_moments_by_hand() -> None:
    # Known 1, 3, 8: mean 4, squares 9 + 1 + 16 = 26. A alone: mean 2, squares 2; B alone: 8, 0.
    assert ask_all(moments(columns=["v"]), Message({}), [A, B, EMPTY]) == {
        "count": [3.0],
        "mean": [4.0],
        "deviations": [26.0],
        "missing": [3],
    }
    assert moments(columns=["v"]).ask(Message({}), A).arrays["deviations"].tolist() == [2.0]


def test_only_empty_sites_give_zeros() -> None:
    assert ask_all(moments(columns=["v"]), Message({}), [EMPTY])["mean"] == [0.0]


def test_a_column_known_for_fewer_patients_than_a_cell_is_unknown_there() -> None:
    # B knows one value of v: too few to tell a sum, which would be that patient's value. Two are missing: enough.
    told = moments(columns=["v"], smallest_cell=2).ask(Message({}), B).arrays
    assert {name: array.tolist() for name, array in told.items()} == {
        "count": [0],
        "sum": [0.0],
        "deviations": [0.0],
        "missing": [2],
    }
    assert ask_all(moments(columns=["v"], smallest_cell=2), Message({}), [A, B])["mean"] == [2.0]


def test_an_answer_is_as_large_as_its_terms_say() -> None:
    assert numbers_of(moments(columns=["v"]).ask(Message({}), A)) == TERMS.numbers(Extent(columns=1))
