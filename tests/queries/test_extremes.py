"""Where values lie, exactly and with a cell of patients at either end."""

import numpy as np
import pandas as pd

from tests.support.answers import numbers_of
from wardround.core.components.terms import Extent
from wardround.core.contracts import Message, Site
from wardround.data.query import ask_all
from wardround.queries.extremes import TERMS, extremes

A = Site("A", pd.DataFrame({"v": [1.0, 3.0, np.nan], "t": ["x", "x", "y"]}))
B = Site("B", pd.DataFrame({"v": [8.0, np.nan, np.nan], "t": ["y", None, "z"]}))
EMPTY = Site("C", A.table.iloc[:0])


def test_extremes_by_hand() -> None:
    assert ask_all(extremes(columns=["v"]), Message({}), [A, B]) == {"low": [1.0], "high": [8.0], "whole": [True]}
    half = Site("H", pd.DataFrame({"v": [2.5]}))
    assert ask_all(extremes(columns=["v"]), Message({}), [A, half])["whole"] == [False]


def test_too_few_values_have_no_ends() -> None:
    assert ask_all(extremes(columns=["v"]), Message({}), [EMPTY])["low"] == [np.inf]
    assert extremes(columns=["v"], smallest_cell=2).ask(Message({}), B).arrays["low"].tolist() == [np.inf]


def test_an_answer_is_as_large_as_its_terms_say() -> None:
    assert numbers_of(extremes(columns=["v"]).ask(Message({}), A)) == TERMS.numbers(Extent(columns=1))


def test_whoever_approves_is_told_of_single_values() -> None:
    assert "values of single patients" in TERMS.describe({"smallest_cell": 1})
    assert "at least 10 patients at either end" in TERMS.describe({"smallest_cell": 10})
