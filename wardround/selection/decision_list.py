"""Decision lists: rules one after the other, each the best for the patients that the rules before left.

Caldas 2022, 3.2.1: the list maximises a lower bound on mean competence; it is then cut after the rule at which the
binomial test on the changed decisions of all patients taken so far has the smallest p-value.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.selection.flips import DRAWS, Flips, binomial_p, corrected_p, count_flips
from wardround.selection.rule_columns import RuleColumns
from wardround.selection.rule_search import (
    RuleBy,
    best_rule,
    column_pairs,
    lower_bound,
    rule_score,
    tables_of,
    taken_from,
)
from wardround.selection.rules import WordRule

Values = np.ndarray[Any, Any]
MOST_RULES = 12
LEAST_SHARE = 0.015


class ListedRule(NamedTuple):
    """A rule, the place of its source, its bound and mean competence, and the rows that it takes (and no earlier)."""

    rule: WordRule
    source: int
    score: float
    """By which it was the best; that of later rules is for the rows that earlier ones left."""
    bound: float
    mean: float
    rows: Values


class ListCut(NamedTuple):
    """How many rules of the list are used, and what they change among the validation patients."""

    rules: int
    flips: Flips
    p_value: float
    corrected: float
    looks: int


def decision_list(
    columns: RuleColumns,
    competence: Values,
    sources: Sequence[str],
    *,
    least: float = LEAST_SHARE,
    features: int = 2,
    most: int = MOST_RULES,
    by: RuleBy = "clearest",
) -> tuple[ListedRule, ...]:
    """The whole list: `competence` is (sources, rows); a rule takes at least a share `least` of the rows.

    With several sources each rule is for the one whose patients it describes best. By "clearest" the list ends where no
    rule has a mean above 0; by "bound" it goes on, and the test on changed decisions says where to cut it.
    """
    rows = competence.shape[1]
    enough = max(2, int(np.ceil(least * rows)))
    left = np.ones(rows, bool)
    pairs = column_pairs(columns, features)
    sums = [tables_of(columns, pairs, one, np.arange(rows)) for one in competence]
    found: list[ListedRule] = []
    while len(found) < most and int(left.sum()) >= enough:
        tried = [
            (best, source)
            for source, one in enumerate(competence)
            if (best := best_rule(columns, sums[source], one, left, enough, rule_score(by, one))) is not None
            and (by == "bound" or best.mean > 0)
        ]
        if not tried:
            break
        best, source = max(tried, key=lambda pair: pair[0].score)
        conditions = tuple(
            columns.condition(place, low, high)
            for place, (low, high) in zip(best.ends.columns, best.ends.ends, strict=True)
            if low is not None or high is not None
        )
        rule = WordRule(conditions=conditions, source=sources[source])
        taken = competence[source][best.rows]
        bound = lower_bound(np.array(len(taken)), taken.sum(), np.square(taken).sum(), enough)
        found.append(ListedRule(rule, source, best.score, float(bound), best.mean, best.rows))
        left &= ~best.rows
        gone = np.flatnonzero(best.rows)
        sums = [taken_from(own, tables_of(columns, pairs, competence[at], gone)) for at, own in enumerate(sums)]
    return tuple(found)


def cut_list(
    listed: Sequence[ListedRule], signs: Values, patients: Values, rng: np.random.Generator, *, draws: int = DRAWS
) -> ListCut:
    """Where the list is best cut; `signs` is (sources, rows), what each source's classifier changes."""
    if not listed:
        return ListCut(0, Flips(0, 0), 1.0, 1.0, 0)
    taken = [np.flatnonzero(one.rows) for one in listed]
    order = np.concatenate(taken)
    changed = np.concatenate([signs[one.source][rows] for one, rows in zip(listed, taken, strict=True)])
    ends = np.cumsum([len(rows) for rows in taken])
    right, wrong = (np.cumsum(one)[ends - 1] for one in (changed > 0, changed < 0))
    p_values = binomial_p(right, wrong)
    best = int(np.argmin(p_values))
    return ListCut(
        best + 1,
        count_flips(changed[: ends[best]]),
        float(p_values[best]),
        corrected_p(changed, ends, patients[order], rng, draws),
        len(ends),
    )
