"""The k nearest patients of each patient, in one pass over blocks of distances.

Euclidean distances of prepared rows (numbers standardised with the site's own mean and deviation, one column of 0 and 1
a category). A patient's own rows can be left out: they would tell the outcome that is to be judged.
"""

from typing import Any

import numpy as np

from wardround.core.errors import Refusal

Values = np.ndarray[Any, Any]


def nearest(
    reference: Values, queries: Values, k: int, *, patients: tuple[Values, Values] | None = None, where: str = ""
) -> Values:
    """Places in `reference` of the k nearest rows, nearest first, shape (queries, k).

    `patients` names whose row each reference and each query is: rows of the query's own patient are left out.
    """
    from sklearn.neighbors import NearestNeighbors

    own = _own_rows(patients)
    if len(reference) < k + own:
        raise Refusal(
            f"{k} neighbours are asked for, and there are {max(0, len(reference) - own)} patients to choose from",
            where=where,
            remedy="set a smaller k in [explain], or give the validation part a larger share",
        )
    search = NearestNeighbors(n_neighbors=k + own, algorithm="brute").fit(np.asarray(reference, np.float32))
    found = np.asarray(search.kneighbors(np.asarray(queries, np.float32), return_distance=False))
    if patients is None or not own:
        return found
    others = patients[0][found] != patients[1][:, None]
    # A stable order keeps the nearest first among those that are somebody else's.
    first = np.argsort(~others, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(found, first, axis=1)


def _own_rows(patients: tuple[Values, Values] | None) -> int:
    """How many rows a patient has at most in the reference."""
    if patients is None or not len(patients[0]):
        return 0
    return int(np.unique(patients[0], return_counts=True)[1].max())
