"""P-values of many comparisons made at once.

Holm, "A simple sequentially rejective multiple test procedure", 1979.
"""

from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]


def holm(p: Numbers) -> Numbers:
    """Corrected for their number: below a level by accident for none of them, that often.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(6).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p)
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return corrected
