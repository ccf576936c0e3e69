"""A column is recorded where enough patients have a value in it."""

import numpy as np
import pandas as pd

from tests.support.answers import numbers_of
from wardround.core.components.terms import Extent
from wardround.core.contracts import Message, Site
from wardround.queries.recorded_columns import TERMS, recorded_columns


def test_recorded_is_what_has_a_known_value():
    """Absent, empty, known once, known twice."""
    tables = [
        pd.DataFrame({"age": [30.0, 40.0], "lab": [np.nan, np.nan], "pain": ["no", None]}),
        pd.DataFrame({"age": [np.nan, 2.0], "pain": [None, None]}),
        pd.DataFrame({"age": [], "lab": []}),
    ]
    columns = ("age", "lab", "pain")
    for cell, recorded in ((1, [[1, 0, 1], [1, 0, 0], [0, 0, 0]]), (2, [[1, 0, 0], [0, 0, 0], [0, 0, 0]])):
        query = recorded_columns(columns=columns, smallest_cell=cell)
        answers = [query.ask(Message({}), Site(f"site-{i}", table)) for i, table in enumerate(tables)]
        assert all(set(answer.arrays) == {"recorded"} for answer in answers)
        report = query.combine(answers)
        assert report["columns"] == list(columns)
        assert np.array(report["recorded"]).astype(int).tolist() == recorded


def test_an_answer_is_as_large_as_its_terms_say():
    answer = recorded_columns(columns=("age", "lab")).ask(Message({}), Site("a", pd.DataFrame({"age": [1.0]})))
    assert numbers_of(answer) == TERMS.numbers(Extent({"columns": ("age", "lab")})) == 2
