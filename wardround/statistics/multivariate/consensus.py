"""Shared coefficients by ADMM: sites solve their own least squares, pulled towards a common matrix, until they agree.

Boyd et al., "Distributed optimization and statistical learning via the alternating direction method of multipliers",
2011, section 7.1, as Silva et al. (ISBI 2019) correct brain measures for age and sex. A site keeps nothing between
exchanges: from the common matrices so far it works out anew what its own dual must be.
"""

from typing import Any

import numpy as np

Matrix = np.ndarray[Any, Any]


def site_step(zz: Matrix, zy: Matrix, history: Matrix, penalty: float) -> Matrix:
    """A site's coefficients plus its dual, after the common matrices W_0, ..., W_k of `history` (k + 1, rows, columns).

    w = argmin |y - z w|^2 / 2 + penalty / 2 |w - W_k + dual|^2; then dual += w - W_(k + 1), which is the next of them.
    """
    dual = np.zeros_like(zy)
    pulled = zz + penalty * np.eye(len(zz))
    for number, common in enumerate(history):
        own = np.linalg.solve(pulled, zy + penalty * (common - dual))
        if number + 1 < len(history):
            dual = dual + own - history[number + 1]
    return own + dual
