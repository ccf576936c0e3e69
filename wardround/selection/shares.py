"""Whether another site sees relatively more patients of a kind: the one-tailed z-test of two shares.

Caldas 2022, 3.3.4: the null hypothesis is that the local share is the larger one.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr


class ShareTest(NamedTuple):
    """Shares here and there, and the p-value of "there are relatively more there"."""

    local: float
    other: float
    p_value: float


def more_there(here: int, all_here: int, there: int, all_there: int) -> ShareTest:
    """
    >>> test = more_there(100, 1000, 150, 1000)
    >>> round(test.p_value, 5)
    0.00037
    """
    if not all_here or not all_there:
        return ShareTest(float("nan"), float("nan"), 1.0)
    local, other = here / all_here, there / all_there
    pooled = (here + there) / (all_here + all_there)
    spread = float(np.sqrt(pooled * (1 - pooled) * (1 / all_here + 1 / all_there)))
    return ShareTest(local, other, 1.0 if not spread else float(ndtr((local - other) / spread)))
