"""Which counts of a table must not be shown: small ones, and as many others as it takes that they cannot be worked out.

Hundepool et al., "Statistical Disclosure Control", Wiley 2012, chapter 5: primary suppression of small counts,
secondary suppression along rows and columns whose sums are known. What is hidden in a line adds up to at least the
smallest cell and is at least two counts.
"""

import numpy as np

from wardround.evaluate.rows import Numbers


def hidden_cells(counts: Numbers, smallest: int, hidden_columns: Numbers | None = None) -> Numbers:
    """Shape (rows, columns) of True where a count must not be shown; sums of rows and columns are taken as known.

    Of `hidden_columns` not even the sum is shown, so nothing of them is.
    """
    hidden = np.asarray((counts > 0) & (counts < smallest))
    if hidden_columns is not None:
        hidden |= hidden_columns[None] & (counts > 0)
    while True:
        before = int(hidden.sum())
        for table, mask in ((counts, hidden), (counts.T, hidden.T)):
            for line, gone in zip(table, mask, strict=True):
                _protect(line, gone, smallest)
        if int(hidden.sum()) == before:
            return hidden


def _protect(line: Numbers, gone: Numbers, smallest: int) -> None:
    """Hide the smallest others of the line, in place, until its hidden counts protect each other."""
    if not gone.any():
        return
    for place in np.argsort(line, kind="stable"):
        if gone.sum() >= 2 and line[gone].sum() >= smallest:
            return
        if not gone[place] and line[place] > 0:
            gone[place] = True
    if gone.sum() < 2 or line[gone].sum() < smallest:
        gone[:] = True
