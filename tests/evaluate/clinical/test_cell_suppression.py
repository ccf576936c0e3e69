"""No hidden count can be worked out from what is shown and the sums."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.amount import examples
from wardround.evaluate.clinical.cell_suppression import hidden_cells


def test_by_hand() -> None:
    # 3 is small; 12 in its row would give it away, and 15 and 12 in the two columns would as well: all four go.
    counts = np.array([[3, 12], [40, 15]])
    assert hidden_cells(counts, 10).tolist() == [[True, True], [True, True]]
    assert not hidden_cells(np.array([[10, 12], [40, 0]]), 10).any()
    assert not hidden_cells(np.array([[3, 12]]), 1).any(), "with a cell of 1 everything is shown"
    # Of three levels the smallest other one goes with it; a count of 0 hides nothing.
    assert hidden_cells(np.array([[3, 0, 12, 50]]), 10).tolist() == [[True, False, True, False]]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda columns: st.lists(
            st.lists(st.integers(0, 40), min_size=columns, max_size=columns), min_size=1, max_size=4
        )
    ),
    st.integers(1, 12),
)
def test_every_line_hides_enough(table: list[list[int]], smallest: int) -> None:
    counts = np.array(table)
    hidden = hidden_cells(counts, smallest)
    assert hidden[(counts > 0) & (counts < smallest)].all()
    for line, gone in [*zip(counts, hidden, strict=True), *zip(counts.T, hidden.T, strict=True)]:
        if gone.any() and not gone[line > 0].all():
            assert gone.sum() >= 2
            assert line[gone].sum() >= smallest
