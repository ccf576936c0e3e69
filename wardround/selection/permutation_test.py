"""Pruning: rules that shuffled patients would have given just as well are dropped.

After Potosnak 2022 (Caldas 2022, 3.4). What is shuffled are the losses of the validation patients, and competence is
worked out again from the same neighbours: the mean over neighbours is smooth over the columns even where nothing is to
be found, so shuffling competence itself would let such rules pass. Rows of a patient move together, with those of a
patient of as many rows. A rule is kept while it is better than all but a share `level` of the best rules that
shuffled patients give.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.selection.decision_list import LEAST_SHARE, ListedRule
from wardround.selection.rule_columns import RuleColumns
from wardround.selection.rule_search import RuleBy, best_rule, column_pairs, rule_score, tables_of

Values = np.ndarray[Any, Any]
SHUFFLES = 99


class Pruned(NamedTuple):
    """How many rules of the list are kept, and the p-value of each."""

    kept: int
    p_values: tuple[float, ...]


def shuffle_by_patient(patients: Values, rng: np.random.Generator) -> Values:
    """For every row the row whose losses it gets: those of another patient with as many rows.

    >>> sorted(shuffle_by_patient(np.array([3, 3, 5, 9, 9]), np.random.default_rng(0)).tolist())
    [0, 1, 2, 3, 4]
    """
    codes = np.unique(patients, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    first = np.cumsum(counts) - counts
    taken = np.empty(len(patients), np.int64)
    for size in np.unique(counts):
        starts = first[counts == size]
        target, origin = starts[:, None] + np.arange(size), rng.permutation(starts)[:, None] + np.arange(size)
        taken[order[target]] = order[origin]
    return taken


def prune(
    listed: Sequence[ListedRule],
    columns: RuleColumns,
    losses: Values,
    values_of: Callable[[Values], Values],
    patients: Values,
    rng: np.random.Generator,
    *,
    level: float = 0.05,
    shuffles: int = SHUFFLES,
    least: float = LEAST_SHARE,
    features: int = 2,
    by: RuleBy = "clearest",
) -> Pruned:
    """Keep the rules before the first that does not pass; `losses` is (own and sources, rows).

    `values_of` makes of losses what rules were looked for in: competence, (sources, rows).
    """
    if not listed:
        return Pruned(0, ())
    rows = losses.shape[1]
    enough, everybody, pairs = max(2, int(np.ceil(least * rows))), np.ones(rows, bool), column_pairs(columns, features)
    null: list[float] = []
    # Once so many shuffles did better than the first rule, it cannot pass any more, and nothing after it can.
    most = int(level * (1 + shuffles)) - 1
    for _ in range(shuffles):
        shuffled = losses[:, shuffle_by_patient(patients, rng)]
        best = -np.inf
        for one in values_of(shuffled):
            sums = tables_of(columns, pairs, one, np.arange(rows))
            found = best_rule(columns, sums, one, everybody, enough, rule_score(by, one))
            best = max(best, -np.inf if found is None else found.score)
        null.append(best)
        if sum(score >= listed[0].score for score in null) > most:
            break
    drawn = np.array(null)
    p_values = tuple(float((1 + (drawn >= one.score).sum()) / (1 + len(drawn))) for one in listed)
    kept = next((place for place, p in enumerate(p_values) if p > level), len(p_values))
    return Pruned(kept, p_values)
