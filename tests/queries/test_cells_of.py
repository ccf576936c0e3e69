"""Every row in one cell, small cells withheld, noise in all, and no more edges than were announced."""

import numpy as np
import pandas as pd
import pytest

from tests.support.answers import numbers_of
from wardround.core.codes.json_arrays import pack, unpack
from wardround.core.components.terms import Extent
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.partners.similarity.histograms import WIDE, ZOOM, ZOOMS
from wardround.queries.cells_of import MOST_EDGES, TERMS, ColumnCells, cells_of, count_cells, withhold_small_cells


def test_every_row_is_counted_in_one_cell() -> None:
    table = pd.DataFrame({"age": [3, 10, 19.5, 20, 88, None], "sign": ["yes", "no", "no", "odd", None, "yes"]})
    site = Site("a", table)
    # A value on an edge lies above it: 3 | 10 19.5 | 20 88 | missing.
    assert count_cells(site, ColumnCells("age", (10.0, 20.0), number=True)).tolist() == [1, 2, 2, 1]
    # yes twice, no twice, one of another name, one missing.
    assert count_cells(site, ColumnCells("sign", names=("yes", "no"))).tolist() == [2, 2, 1, 1]
    # A column that the site does not have is missing for all.
    assert count_cells(site, ColumnCells("weight", (10.0,), number=True)).tolist() == [0, 0, 6]


@pytest.mark.parametrize(
    ("counts", "told", "rest"),
    [
        ([30, 5, 9], [30, 5, 9], 0),  # nothing is small
        ([30, 4, 9], [34, 0, 9], 0),  # one small cell could be had from the total: the largest takes it
        ([30, 3, 3, 0], [30, 0, 0, 0], 6),  # two small cells, 5 or more together: their sum is told
        ([30, 2, 2, 0], [34, 0, 0, 0], 0),  # their sum is small too
        ([4, 4, 4], [0, 0, 0], 12),  # all are small
        ([1, 2, 1], [0, 0, 0], 0),  # and so is their sum: nothing is told
    ],
)
def test_small_cells_are_withheld(counts: list[int], told: list[int], rest: int) -> None:
    cells, kept = withhold_small_cells(np.array(counts), 5, noisy=False)
    assert (cells.tolist(), kept) == (told, rest)


def test_a_message_holds_noisy_cells_and_nothing_else() -> None:
    table = pd.DataFrame({"town": ["Bo"] * 40 + ["Kenema"] * 30 + ["Tiny"] * 4, "weight": np.arange(74) + 0.125})
    site = Site("ward", table)
    columns = [ColumnCells("town", names=("Bo", "Kenema")), ColumnCells("weight", (20.0, 50.0), number=True)]
    message = Message({"columns": pack([column._asdict() for column in columns])})
    answer = cells_of(epsilon=1.0, smallest_cell=5, seed=3).ask(message, site)
    assert set(answer.arrays) == {"site", "names", "cells_0", "cells_1", "rest_0", "rest_1"}
    assert unpack(answer.arrays["site"]) == "ward"
    np.testing.assert_array_equal(answer.arrays["names"], message.arrays["columns"])
    for cells in (answer.arrays["cells_0"], answer.arrays["cells_1"]):
        assert cells.dtype == np.int64
        assert ((cells == 0) | (cells >= 5)).all()
    exact = [count_cells(site, column) for column in columns]
    assert exact[0].tolist() == [40, 30, 4, 0]
    assert any((answer.arrays[f"cells_{i}"] != exact[i]).any() for i in range(2))


def test_finer_ranges_than_announced_are_refused_at_the_site() -> None:
    site = Site("ward", pd.DataFrame({"age": np.arange(50.0)}))
    query = cells_of(epsilon=0.0, smallest_cell=5, seed=None)

    def ask(edges: int) -> Message:
        column = ColumnCells("age", tuple(np.linspace(0, 50, edges).tolist()), number=True)
        return query.ask(Message({"columns": pack([column._asdict()])}), site)

    ask(MOST_EDGES)
    with pytest.raises(Refusal, match="Counts between 30 edges"):
        ask(MOST_EDGES + 1)


def test_the_terms_are_what_histograms_need() -> None:
    assert max(len(WIDE), ZOOM + 1) == MOST_EDGES
    assert TERMS.times == ZOOMS + 1 + 1  # the first look, the zooms, the counts
    # An epsilon of 0.5 a column for two columns.
    message = Message({"columns": pack([{"name": "age"}, {"name": "sex"}])})
    assert TERMS.spends({"epsilon": 0.5}, message) == 1.0


def test_an_answer_is_no_larger_than_its_terms_say() -> None:
    site = Site("ward", pd.DataFrame({"age": np.arange(50.0), "town": ["Bo"] * 50}))
    columns = [ColumnCells("age", tuple(WIDE.tolist()), number=True), ColumnCells("town", names=tuple("abcdef") * 25)]
    message = Message({"columns": pack([column._asdict() for column in columns])})
    answer = cells_of(epsilon=0.0, smallest_cell=5, seed=None).ask(message, site)
    counts = {name: array for name, array in answer.arrays.items() if name.startswith(("cells", "rest"))}
    # 150 names of three sites, 50 each: 29 + 3 numbers for age, 150 + 3 for town.
    assert numbers_of(Message(counts)) == 32 + 153 <= TERMS.numbers(Extent(sites=3, columns=2))
