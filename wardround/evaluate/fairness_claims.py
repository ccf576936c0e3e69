"""What is said of privacy, uneven data and fairness, held against repeats: borne out, contradicted, or not shown.

The claims are those of a study of federated learning with DP-SGD on census data. Figures come one set a
repeat, for every way to deal the rows out and every privacy level; levels share the repeat's split. A trend is the
least-squares slope over the levels of one repeat, from none to the strictest; slopes and differences are tested over
repeats with the corrected t interval of Nadeau & Bengio 2003, and Holm's correction holds within a claim.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from wardround.core.bounds import Momentum
from wardround.evaluate.comparison import Difference, corrected, paired_values

Figures = Mapping[str, float | None]
"""Of one repeat, by name: "recall", "race/equal_odds_gap", "race/recall/White"."""
Standing = Literal["for", "against", "open"]
EVEN = "iid"
INDEX, LEFT_OVER = "generalized_entropy_index", "overfitting"
SPREADS = ("equal_opportunity_gap", "equal_odds_gap")


class Arms(NamedTuple):
    """All that was run: `figures[partition][level]` has one entry a repeat; levels go from the loosest to strictest.

    `columns` names for each protected column its largest group, which is taken for the privileged one.
    """

    figures: Mapping[str, Sequence[Sequence[Figures]]]
    levels: Sequence[str]
    columns: Mapping[str, str]

    def values(self, partition: str, level: int, name: str) -> list[float | None]:
        return [repeat.get(name) for repeat in self.figures[partition][level]]

    def mean(self, partition: str, level: int, name: str) -> float | None:
        known = [value for value in self.values(partition, level, name) if value is not None]
        return float(np.mean(known)) if known else None

    def slopes(self, partition: str, name: str) -> list[float | None]:
        """The change for each step of privacy in every repeat; none where a level has no value."""
        columns = [self.values(partition, level, name) for level in range(len(self.levels))]
        return [slope(row) for row in zip(*columns, strict=True)]

    def change(self, partition: str, name: str) -> list[float | None]:
        """The strictest level less the loosest."""
        return less(self.values(partition, -1, name), self.values(partition, 0, name))

    def groups(self, partition: str, column: str) -> list[str]:
        """The column's groups but for the largest."""
        stem = f"{column}/recall/"
        names = {name.removeprefix(stem) for one in self.figures[partition][0] for name in one if name.startswith(stem)}
        return sorted(names - {self.columns[column]})


class Trial(NamedTuple):
    """One measure in one setting: what was expected to be more than 0, and what it is."""

    what: str
    partition: str
    found: Difference
    before: float | None = None
    """The measure's mean with the loosest privacy, where the test is about one measure;"""
    after: float | None = None
    """and with the strictest."""

    @property
    def standing(self) -> Standing:
        return {"better": "for", "worse": "against"}.get(self.found.verdict, "open")  # type: ignore[return-value]


class Claim(NamedTuple):
    words: str
    tested: str
    """How it was tested, in words."""
    tests: tuple[Trial, ...]

    @property
    def verdict(self) -> str:
        """What these data say of it."""
        standings = [test.standing for test in self.tests]
        good, bad, of = standings.count("for"), standings.count("against"), len(standings)
        if not of:
            return "not tested"
        if good and bad:
            return f"mixed: {good} of {of} tests speak for it, {bad} against it"
        if good:
            return "borne out" if good == of else f"borne out in part: {good} of {of} tests, the others show nothing"
        if bad:
            return (
                "contradicted" if bad == of else f"contradicted in part: {bad} of {of} tests, the others show nothing"
            )
        return "not shown"


def slope(values: Sequence[float | None]) -> float | None:
    """Least squares over equal steps.

    >>> slope([1.0, 3.0, 5.0]), slope([1.0, None, 2.0])
    (2.0, None)
    """
    known = [value for value in values if value is not None]
    if len(known) < len(values) or len(known) < 2:
        return None
    steps = np.arange(len(known)) - (len(known) - 1) / 2
    return float(steps @ np.array(known) / (steps @ steps))


def less(a: Sequence[float | None], b: Sequence[float | None]) -> list[float | None]:
    """a - b, none where either is none."""
    return [None if p is None or q is None else p - q for p, q in zip(a, b, strict=True)]


def minus(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else -value for value in values]


def judged(arms: Arms, *, test_share: Momentum = 0.0) -> list[Claim]:
    """Every claim with its tests; `test_share` (test rows / all rows) widens intervals, since splits overlap."""
    parts = [_unfairer, _fairer_again, _gaps, _weaker_groups, _uneven, _uneven_fades, _worse, _recall, _less_overfit]
    claims = []
    for part in parts:
        words, tested, tests = part(arms)
        found = {
            index: paired_values(values, [0.0] * len(values), higher_is_better=True, test_share=test_share)
            for index, (_, _, values, _) in enumerate(tests)
        }
        settled = corrected(found)
        claims.append(
            Claim(
                words,
                tested,
                tuple(
                    Trial(what, partition, settled[index], *_ends(arms, partition, name))
                    for index, (what, partition, _, name) in enumerate(tests)
                ),
            )
        )
    return claims


Draft = tuple[str, str, list[float | None], str]
"""What, in which partition, the values expected above 0, and the measure whose ends are shown."""
Part = tuple[str, str, list[Draft]]


def _ends(arms: Arms, partition: str, name: str) -> tuple[float | None, float | None]:
    return (arms.mean(partition, 0, name), arms.mean(partition, -1, name)) if name else (None, None)


def _over(arms: Arms, names: Sequence[str], values: Callable[[str, str], list[float | None]]) -> list[Draft]:
    return [(name, partition, values(partition, name), name) for partition in arms.figures for name in names]


def _dataset_level(arms: Arms) -> list[str]:
    return [INDEX, *(f"{column}/differential_fairness" for column in arms.columns)]


def _group_level(arms: Arms) -> list[str]:
    return [f"{column}/{spread}" for column in arms.columns for spread in SPREADS]


def _unfairer(arms: Arms) -> Part:
    return (
        "Fairness over the whole data set drops with increasing privacy.",
        "The generalized entropy index and differential fairness (both: lower is fairer) rise from level to level.",
        _over(arms, _dataset_level(arms), arms.slopes),
    )


def _fairer_again(arms: Arms) -> Part:
    def values(partition: str, name: str) -> list[float | None]:
        return less(arms.values(partition, -2, name), arms.values(partition, -1, name))

    return (
        "High privacy acts as a regularization: fairness over the whole data set gains again.",
        "At the strictest level the same measures are lower than at the one before.",
        _over(arms, _dataset_level(arms), values),
    )


def _gaps(arms: Arms) -> Part:
    return (
        "Fairness between groups drops with increasing privacy.",
        "The gaps of equal opportunity and equal odds rise from level to level.",
        _over(arms, _group_level(arms), arms.slopes),
    )


def _weaker_groups(arms: Arms) -> Part:
    tests: list[Draft] = []
    for partition in arms.figures:
        for column, largest in arms.columns.items():
            own = arms.change(partition, f"{column}/recall/{largest}")
            for group in arms.groups(partition, column):
                name = f"{column}/recall/{group}"
                tests.append((name, partition, less(own, arms.change(partition, name)), name))
    return (
        "The impact of privacy is more prominent on underprivileged groups.",
        "From none to the strictest level, recall drops more in a group than in the largest group of its column.",
        tests,
    )


def _uneven(arms: Arms) -> Part:
    def values(partition: str, name: str) -> list[float | None]:
        return less(arms.values(partition, 0, name), arms.values(EVEN, 0, name))

    return (
        "Uneven data have a negative impact on fairness between groups where privacy is low.",
        "Without privacy, the gaps of equal opportunity and equal odds are larger than with rows dealt out at random.",
        _against_even(arms, values),
    )


def _uneven_fades(arms: Arms) -> Part:
    def values(partition: str, name: str) -> list[float | None]:
        loose = less(arms.values(partition, 0, name), arms.values(EVEN, 0, name))
        return less(loose, less(arms.values(partition, -1, name), arms.values(EVEN, -1, name)))

    return (
        "The impact of uneven data is less prominent with increasing privacy.",
        "That difference from rows dealt out at random is smaller at the strictest level than without privacy.",
        _against_even(arms, values),
    )


def _against_even(arms: Arms, values: Callable[[str, str], list[float | None]]) -> list[Draft]:
    if EVEN not in arms.figures:
        return []
    drafts = _over(arms, _group_level(arms), values)
    return [draft for draft in drafts if draft[1] != EVEN]


def _worse(arms: Arms) -> Part:
    return (
        "Performance drops with increasing privacy.",
        "F1 and ROC-AUC fall from level to level.",
        _over(arms, ["f1", "roc_auc"], lambda partition, name: minus(arms.slopes(partition, name))),
    )


def _recall(arms: Arms) -> Part:
    falls = _over(arms, ["recall"], lambda partition, name: minus(arms.slopes(partition, name)))
    more = [
        (
            "recall drops more than precision",
            partition,
            less(arms.change(partition, "precision"), arms.change(partition, "recall")),
            "precision",
        )
        for partition in arms.figures
    ]
    return (
        "Recall drops significantly, while the difference in precision is negligible.",
        "Recall falls from level to level; and from none to the strictest it drops more than precision does.",
        [*falls, *more],
    )


def _less_overfit(arms: Arms) -> Part:
    return (
        "High privacy acts as a regularization: the model fits its own patients less closely.",
        "The loss on new patients less that on the training patients is smaller at the strictest level than without.",
        _over(arms, [LEFT_OVER], lambda partition, name: minus(arms.change(partition, name))),
    )
