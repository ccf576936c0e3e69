"""Which candidate the expert is shown next: the one with the largest lower bound of its mean usefulness.

Caldas 2022, section 5.2.2: over the sites that propose a candidate, the mean of their estimates minus
sqrt(ln(2 / delta) / (2 sites)); one step ahead, the largest is shown. Greedy leaves the bound out, random looks at
nothing. A candidate that fewer than `fewest` sites propose is never shown.
"""

import math
from typing import Any, Literal

import numpy as np

Values = np.ndarray[Any, Any]
Strategy = Literal["bound", "greedy", "random"]


def lower_bound(total: Values, sites: Values, delta: float) -> Values:
    """
    >>> lower_bound(np.array([3.2, 0.0]), np.array([4.0, 0.0]), 0.05).round(3).tolist()
    [0.121, -inf]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = total / sites - np.sqrt(math.log(2 / delta) / (2 * sites))
    return np.asarray(np.where(sites > 0.5, bound, -np.inf))


def choose(
    strategy: Strategy, total: Values, sites: Values, open_: Values, *, delta: float, fewest: int, seed: int
) -> int | None:
    """The place of the candidate to be shown, of those that are open; none where no candidate is left."""
    shown = np.flatnonzero(np.asarray(open_, bool) & (sites >= fewest - 0.5))
    if not len(shown):
        return None
    if strategy == "random":
        return int(np.random.default_rng(seed).choice(shown))
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = lower_bound(total, sites, delta) if strategy == "bound" else total / sites
    return int(shown[np.argmax(scores[shown])])
