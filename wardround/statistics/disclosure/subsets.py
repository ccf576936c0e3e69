"""Subsets of patients that differ by few: what one tells and the other does not is told of these few.

A condition that leaves out some, but fewer than a cell, is refused ("all but one" is a question about the one). So is
one that leaves some, but fewer than a cell. And a site that remembers which patients earlier questions covered refuses
one that covers almost the same, in whatever way the difference came about: by a condition, by a column that few have
missing, or by a patient who has left.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from wardround.core.errors import Refusal

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def check_condition(kept: int, of: int, cell: int, *, site: str) -> None:
    """Refuse a condition by which a small group is asked about, or left out.

    >>> [check_condition(kept, 40, 10, site="A") for kept in (40, 30, 10, 0)]
    [None, None, None, None]
    """
    if cell <= 1 or kept in (0, of):
        return
    few = "covers" if kept < cell else "leaves out" if of - kept < cell else ""
    if few:
        raise Refusal(
            f"the condition {few} fewer than {cell} patients, about whom the answer would tell",
            where=f"site {site}, [analysis] only",
            remedy="choose a condition with at least a cell of patients on both sides, or leave it out",
        )


def check_difference(now: Mask, earlier: Iterable[Mask], cell: int, *, site: str) -> None:
    """Refuse patients who are those of an earlier question but for a few; masks of a table that grew are longer."""
    if cell <= 1:
        return
    for before in earlier:
        both = np.zeros((2, max(len(now), len(before))), bool)
        both[0, : len(now)], both[1, : len(before)] = now, before
        # Either side alone: 3 who left and 40 who came still tell of the 3, by two answers about the others.
        new, gone = int((both[0] & ~both[1]).sum()), int((both[1] & ~both[0]).sum())
        if both.all(axis=0).any() and (0 < gone < cell or 0 < new < cell):
            raise Refusal(
                f"the question covers the patients of an earlier one but for fewer than {cell}, and the difference of"
                " the answers would tell about them",
                where=f"site {site}",
                remedy="ask about the same patients as before (the same columns and condition), or about others",
            )
