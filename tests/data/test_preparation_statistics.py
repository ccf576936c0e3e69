import numpy as np
import pandas as pd

from wardround.core.contracts import Message, Site
from wardround.data.query import ask_all, unpack
from wardround.data.statistics import category_counts, extremes, histogram, moments

A = Site("A", pd.DataFrame({"v": [1.0, 3.0, np.nan], "t": ["x", "x", "y"]}))
B = Site("B", pd.DataFrame({"v": [8.0, np.nan, np.nan], "t": ["y", None, "z"]}))
EMPTY = Site("C", A.table.iloc[:0])


def test_moments_by_hand() -> None:
    # Known 1, 3, 8: mean 4, squares 9 + 1 + 16 = 26. A alone: mean 2, squares 2; B alone: 8, 0.
    assert ask_all(moments(["v"]), Message({}), [A, B, EMPTY]) == {
        "count": [3.0],
        "mean": [4.0],
        "deviations": [26.0],
        "missing": [3],
    }
    assert moments(["v"]).ask(Message({}), A).arrays["deviations"].tolist() == [2.0]


def test_only_empty_sites_give_zeros() -> None:
    assert ask_all(moments(["v"]), Message({}), [EMPTY])["mean"] == [0.0]
    assert ask_all(extremes(["v"]), Message({}), [EMPTY])["low"] == [np.inf]


def test_extremes_by_hand() -> None:
    assert ask_all(extremes(["v"]), Message({}), [A, B]) == {"low": [1.0], "high": [8.0], "whole": [True]}
    half = Site("H", pd.DataFrame({"v": [2.5]}))
    assert ask_all(extremes(["v"]), Message({}), [A, half])["whole"] == [False]


def test_histogram_counts_are_closed_below_and_open_above() -> None:
    # Edges 1, 3, 8: 1 is in [1, 3), 3 in [3, 8), 8 above all.
    # Edges 3, 8, 9: 1 is below, 3 in the first, 8 in the second.
    edges = np.array([[[1.0, 3.0, 8.0], [3.0, 8.0, 9.0]]])
    report = ask_all(histogram(["v"]), Message({"edges": edges}), [A, B, EMPTY])
    assert report == {"below": [[0, 1]], "counts": [[[1, 1], [1, 1]]], "known": [3]}


def test_category_counts_by_hand() -> None:
    report = ask_all(category_counts(["t"], most=3), Message({}), [A, B, EMPTY])
    assert report == {"counts": {"t": {"x": 2, "y": 2, "z": 1}}, "missing": [1]}


def test_small_cells_are_withheld_at_the_site() -> None:
    query = category_counts(["t"], most=3, smallest_cell=2)
    assert unpack(query.ask(Message({}), A).arrays["counts"]) == {"t": {"x": 2}}
    # B knows one value of v: too few to tell a sum, which would be that patient's value. Two are missing: enough.
    told = moments(["v"], smallest_cell=2).ask(Message({}), B).arrays
    assert {name: array.tolist() for name, array in told.items()} == {
        "count": [0],
        "sum": [0.0],
        "deviations": [0.0],
        "missing": [2],
    }
    assert extremes(["v"], smallest_cell=2).ask(Message({}), B).arrays["low"].tolist() == [np.inf]
    edges = Message({"edges": np.array([[[0.0, 10.0]]])})
    assert histogram(["v"], smallest_cell=2).ask(edges, B).arrays["counts"].tolist() == [[[0]]]
    assert ask_all(moments(["v"], smallest_cell=2), Message({}), [A, B])["mean"] == [2.0]
