"""Counts between edges by hand, and none where patients are few."""

import numpy as np
import pandas as pd

from tests.support.answers import numbers_of
from wardround.core.components.terms import Extent
from wardround.core.contracts import Message, Site
from wardround.data.query import ask_all
from wardround.queries.cells import BINS
from wardround.queries.histogram import TERMS, histogram

A = Site("A", pd.DataFrame({"v": [1.0, 3.0, np.nan], "t": ["x", "x", "y"]}))
B = Site("B", pd.DataFrame({"v": [8.0, np.nan, np.nan], "t": ["y", None, "z"]}))
EMPTY = Site("C", A.table.iloc[:0])


def test_histogram_counts_are_closed_below_and_open_above() -> None:
    # Edges 1, 3, 8: 1 is in [1, 3), 3 in [3, 8), 8 above all.
    # Edges 3, 8, 9: 1 is below, 3 in the first, 8 in the second.
    edges = np.array([[[1.0, 3.0, 8.0], [3.0, 8.0, 9.0]]])
    report = ask_all(histogram(columns=["v"]), Message({"edges": edges}), [A, B, EMPTY])
    assert report == {"below": [[0, 1]], "counts": [[[1, 1], [1, 1]]], "known": [3]}


def test_nothing_is_counted_where_a_cell_of_patients_is_not_known() -> None:
    edges = Message({"edges": np.array([[[0.0, 10.0]]])})
    assert histogram(columns=["v"], smallest_cell=2).ask(edges, B).arrays["counts"].tolist() == [[[0]]]


def test_an_answer_is_as_large_as_its_terms_say() -> None:
    edges = Message({"edges": np.zeros((1, 2, BINS + 1))})
    assert numbers_of(histogram(columns=["v"]).ask(edges, A)) == TERMS.numbers(Extent(columns=1))
