"""What is said of privacy, uneven data and fairness, held against repeats: borne out, contradicted, or neither.

The claims are those of a study of federated learning with DP-SGD on census data. Figures come one set a
repeat, for every way to deal the rows out and every privacy level; levels share the repeat's split. A trend is the
least-squares slope over the levels of one repeat, from none to the strictest; slopes and differences are tested over
repeats with the corrected t interval of Nadeau & Bengio 2003, each by its own interval. A claim is
borne out where at least half of its tests speak for it and none against it, contradicted where it is the other way
round; else these data cannot tell. A claim about two measures needs this of each of them. That a difference is
negligible is shown where its whole interval is (a test of equivalence), not where no difference was shown.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from wardround.core.bounds import Momentum
from wardround.evaluate.comparison import PairedDifference, paired_values

Figures = Mapping[str, float | None]
"""Of one repeat, by name: "recall", "race/equal_odds_gap", "race/recall/White"."""
Standing = Literal["for", "against", "open"]
Verdict = Literal["borne out", "contradicted", "cannot be told from these data"]
OF_PRIVACY = ("without privacy", "at the strictest level")
EVEN = "iid"
INDEX, LEFT_OVER = "generalized_entropy_index", "overfitting"
NEGLIGIBLE = 0.02
"""A change of a share of patients, such as precision, that is taken for none: two in a hundred."""
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
        return subtract(self.values(partition, -1, name), self.values(partition, 0, name))

    def groups(self, partition: str, column: str) -> list[str]:
        """The column's groups but for the largest."""
        stem = f"{column}/recall/"
        names = {name.removeprefix(stem) for one in self.figures[partition][0] for name in one if name.startswith(stem)}
        return sorted(names - {self.columns[column]})


class Trial(NamedTuple):
    """One measure in one setting: what was expected to be more than 0, or within bounds, and what it is."""

    what: str
    partition: str
    found: PairedDifference
    before: float | None = None
    """The means of what is held against each other, as the claim's `ends` name them."""
    after: float | None = None
    within: float | None = None
    """Where it was expected to be no further from 0 than this: for it where its whole interval is, against it where no
    part of the interval is."""

    @property
    def standing(self) -> Standing:
        low, high = self.found.low, self.found.high
        if self.within is not None:
            if low is None or high is None:
                return "open"
            if -self.within < low and high < self.within:
                return "for"
            return "against" if low > self.within or high < -self.within else "open"
        return {"better": "for", "worse": "against"}.get(self.found.verdict, "open")  # type: ignore[return-value]


class Claim(NamedTuple):
    words: str
    tested: str
    """How it was tested, in words."""
    tests: tuple[Trial, ...]
    ends: tuple[str, str] = OF_PRIVACY
    """What `before` and `after` are in its tests."""
    every: bool = False
    """Whether it says something of each of its measures, so that every one of them must speak for it."""

    def mean_ends(self, what: str) -> tuple[float | None, float | None]:
        """Both ends of one measure, averaged over the partitions where it was tested and has both."""
        pairs = [
            (test.before, test.after)
            for test in self.tests
            if test.what == what and test.before is not None and test.after is not None
        ]
        if not pairs:
            return None, None
        before, after = np.array(pairs).mean(axis=0)
        return float(before), float(after)

    def count(self, standing: Standing) -> int:
        return [test.standing for test in self.tests].count(standing)

    @property
    def verdict(self) -> Verdict:
        """What these data say of it; of what says two things, that both hold, or that one of them does not."""
        names = dict.fromkeys(test.what if self.every else "" for test in self.tests)
        parts = [[test.standing for test in self.tests if name in ("", test.what)] for name in names]
        if parts and all(mostly(part, "for", "against") for part in parts):
            return "borne out"
        if any(mostly(part, "against", "for") for part in parts):
            return "contradicted"
        return "cannot be told from these data"

    @property
    def tally_text(self) -> str:
        """How many tests speak for it."""
        if not self.tests:
            return "nothing was tested"
        good, bad = (self.count(standing) or "none" for standing in ("for", "against"))
        return f"{good} of {len(self.tests)} tests for it, {bad} against it"


def mostly(standings: Sequence[Standing], one: Standing, other: Standing) -> bool:
    """At least half of the tests one way, and none the other."""
    return other not in standings and 0 < standings.count(one) >= len(standings) / 2


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


def subtract(a: Sequence[float | None], b: Sequence[float | None]) -> list[float | None]:
    """a - b, none where either is none."""
    return [None if p is None or q is None else p - q for p, q in zip(a, b, strict=True)]


def negate(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else -value for value in values]


def judge_claims(arms: Arms, *, test_share: Momentum = 0.0) -> list[Claim]:
    """Every claim with its tests; `test_share` (test rows / all rows) widens intervals, since splits overlap.

    A test stands as its own interval says. That a claim needs half of its tests is the correction for their number:
    where nothing is true, at most 2.5 % of them speak for it on average, however they hang together, so half of them
    do so in at most 5 % of cases (Markov's inequality).
    """
    parts = [_unfairer, _fairer_again, _gaps, _weaker_groups, _uneven, _uneven_fades, _worse, _recall, _less_overfit]
    claims = []
    for part in parts:
        found = part(arms)
        tested = {
            index: paired_values(draft.values, [0.0] * len(draft.values), higher_is_better=True, test_share=test_share)
            for index, draft in enumerate(found.drafts)
        }
        tests = [
            Trial(one.what, one.partition, tested[index], *one.ends, one.within)
            for index, one in enumerate(found.drafts)
        ]
        claims.append(Claim(found.words, found.tested, tuple(tests), found.ends, found.every))
    return claims


Ends = tuple[float | None, float | None]


class Draft(NamedTuple):
    """A test to be made: of which measure, in which partition, the values expected above 0, and what is shown of it.

    `within` is said where the values are expected to be negligible instead.
    """

    what: str
    partition: str
    values: list[float | None]
    ends: Ends
    within: float | None = None


class SubClaim(NamedTuple):
    words: str
    tested: str
    drafts: list[Draft]
    ends: tuple[str, str] = OF_PRIVACY
    every: bool = False


def _over(
    arms: Arms,
    names: Sequence[str],
    values: Callable[[str, str], list[float | None]],
    ends: Callable[[str, str], Ends] | None = None,
) -> list[Draft]:
    """Every measure in every partition; beside it stand, if not said otherwise, the means at both ends of privacy."""

    def of_privacy(partition: str, name: str) -> Ends:
        return arms.mean(partition, 0, name), arms.mean(partition, -1, name)

    show = ends or of_privacy
    return [
        Draft(name, partition, values(partition, name), show(partition, name))
        for partition in arms.figures
        for name in names
    ]


def _dataset_level(arms: Arms) -> list[str]:
    return [INDEX, *(f"{column}/differential_fairness" for column in arms.columns)]


def _group_level(arms: Arms) -> list[str]:
    return [f"{column}/{spread}" for column in arms.columns for spread in SPREADS]


def _unfairer(arms: Arms) -> SubClaim:
    return SubClaim(
        "Fairness over the whole data set drops with increasing privacy.",
        "The generalized entropy index and differential fairness (both: lower is fairer) rise from level to level.",
        _over(arms, _dataset_level(arms), arms.slopes),
    )


def _fairer_again(arms: Arms) -> SubClaim:
    def values(partition: str, name: str) -> list[float | None]:
        return subtract(arms.values(partition, -2, name), arms.values(partition, -1, name))

    def ends(partition: str, name: str) -> Ends:
        return arms.mean(partition, -2, name), arms.mean(partition, -1, name)

    return SubClaim(
        "High privacy acts as a regularization: fairness over the whole data set gains again.",
        "At the strictest level the same measures are lower than at the one before.",
        _over(arms, _dataset_level(arms), values, ends),
        ("at the level before", "at the strictest level"),
    )


def _gaps(arms: Arms) -> SubClaim:
    return SubClaim(
        "Fairness between groups drops with increasing privacy.",
        "The gaps of equal opportunity and equal odds rise from level to level.",
        _over(arms, _group_level(arms), arms.slopes),
    )


def _weaker_groups(arms: Arms) -> SubClaim:
    tests: list[Draft] = []
    for partition in arms.figures:
        for column, largest in arms.columns.items():
            own = arms.change(partition, f"{column}/recall/{largest}")
            for group in arms.groups(partition, column):
                name = f"{column}/recall/{group}"
                ends = (arms.mean(partition, 0, name), arms.mean(partition, -1, name))
                tests.append(Draft(name, partition, subtract(own, arms.change(partition, name)), ends))
    return SubClaim(
        "The impact of privacy is more prominent on underprivileged groups.",
        "From none to the strictest level, recall drops more in a group than in the largest group of its column.",
        tests,
    )


def _uneven(arms: Arms) -> SubClaim:
    def values(partition: str, name: str) -> list[float | None]:
        return subtract(arms.values(partition, 0, name), arms.values(EVEN, 0, name))

    def ends(partition: str, name: str) -> Ends:
        return arms.mean(EVEN, 0, name), arms.mean(partition, 0, name)

    return SubClaim(
        "Uneven data have a negative impact on fairness between groups where privacy is low.",
        "Without privacy, the gaps of equal opportunity and equal odds are larger than with rows dealt out at random.",
        _against_even(arms, values, ends),
        ("at random", "uneven"),
    )


def _uneven_fades(arms: Arms) -> SubClaim:
    def values(partition: str, name: str) -> list[float | None]:
        loose = subtract(arms.values(partition, 0, name), arms.values(EVEN, 0, name))
        return subtract(loose, subtract(arms.values(partition, -1, name), arms.values(EVEN, -1, name)))

    def ends(partition: str, name: str) -> Ends:
        loosest, strictest = (
            subtract([arms.mean(partition, level, name)], [arms.mean(EVEN, level, name)])[0] for level in (0, -1)
        )
        return loosest, strictest

    return SubClaim(
        "The impact of uneven data is less prominent with increasing privacy.",
        "That difference from rows dealt out at random is smaller at the strictest level than without privacy.",
        _against_even(arms, values, ends),
        ("difference without privacy", "difference at the strictest level"),
    )


def _against_even(
    arms: Arms, values: Callable[[str, str], list[float | None]], ends: Callable[[str, str], Ends]
) -> list[Draft]:
    if EVEN not in arms.figures:
        return []
    return [draft for draft in _over(arms, _group_level(arms), values, ends) if draft.partition != EVEN]


def _worse(arms: Arms) -> SubClaim:
    return SubClaim(
        "Performance drops with increasing privacy.",
        "F1 and ROC-AUC fall from level to level.",
        _over(arms, ["f1", "roc_auc"], lambda partition, name: negate(arms.slopes(partition, name))),
    )


def _recall(arms: Arms) -> SubClaim:
    falls = _over(arms, ["recall"], lambda partition, name: negate(arms.slopes(partition, name)))
    small = [one._replace(within=NEGLIGIBLE) for one in _over(arms, ["precision"], arms.change)]
    return SubClaim(
        "Recall drops significantly, while the difference in precision is negligible.",
        "Recall falls from level to level; and from none to the strictest level precision changes by less than "
        f"{NEGLIGIBLE:g} (its whole interval).",
        [*falls, *small],
        every=True,
    )


def _less_overfit(arms: Arms) -> SubClaim:
    return SubClaim(
        "High privacy acts as a regularization: the model fits its own patients less closely.",
        "The loss on new patients less that on the training patients is smaller at the strictest level than without.",
        _over(arms, [LEFT_OVER], lambda partition, name: negate(arms.change(partition, name))),
    )
