"""How far each site's part is diluted among the chosen partners, told before training, and who withdraws over it.

The asking site publishes whom it chose; every site sees its share of the training rows and of the weight and holds it
against a limit of its own, above which the model would give away too much of its data (intellectual property). A site
over its limit withdraws, and the choice is made again among the rest, until nobody withdraws or nobody is left.
Needs only counts of rows and weights, no model and no patient's record. Reruns the choice at most once for every site.
"""

import math
import numbers as numeric
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from wardround.core.errors import Refusal

SLACK = 1e-9
"""Shares are quotients of rounded numbers: a site exactly at its limit is not over it."""


class DilutedPart(NamedTuple):
    """One site's share of what the partners bring together; without a limit of its own, the limit is 1."""

    site: str
    rows: int
    row_share: float
    weight_share: float | None
    limit: float

    @property
    def over(self) -> bool:
        return max(self.row_share, self.weight_share or 0.0) > self.limit + SLACK

    def __str__(self) -> str:
        shares = f"{self.row_share:.1%} of the training rows ({self.rows:,})"
        if self.weight_share is not None:
            shares += f" and {self.weight_share:.1%} of the weight"
        verdict = "over" if self.over else "within"
        return f"{self.site} would be {shares}: {verdict} its limit of {self.limit:.4g}"


@dataclass(frozen=True)
class Dilution:
    """The parts of all that train together, by name."""

    parts: tuple[DilutedPart, ...]

    @property
    def over(self) -> tuple[str, ...]:
        return tuple(part.site for part in self.parts if part.over)

    def __str__(self) -> str:
        return "\n".join(f"{part}." for part in self.parts)


class PartnerSet(NamedTuple):
    """Whom a choice takes: the training rows of each, and its weight where the weights are known beforehand."""

    rows: Mapping[str, int]
    weights: Mapping[str, float] | None = None


class WithdrawalTurn(NamedTuple):
    """One choice as it was shown to the sites, and who withdrew over it."""

    dilution: Dilution
    withdrew: tuple[str, ...]


@dataclass(frozen=True)
class Settlement:
    """The partners nobody of whom withdraws (none: train alone), how it came to that, and the same in words."""

    partners: tuple[str, ...]
    dilution: Dilution | None
    turns: tuple[WithdrawalTurn, ...]
    words: str

    @property
    def withdrew(self) -> tuple[str, ...]:
        """All who withdrew, in their order."""
        return tuple(site for turn in self.turns for site in turn.withdrew)


def dilution(rows: Mapping[str, int], weights: Mapping[str, float] | None, limits: Mapping[str, float]) -> Dilution:
    """Each site's share of the rows and of the weight against its limit; limits of sites not chosen are passed over.

    >>> print(dilution({"a": 30, "b": 10}, None, {"a": 0.5}))
    a would be 75.0% of the training rows (30): over its limit of 0.5.
    b would be 25.0% of the training rows (10): within its limit of 1.
    """
    check_limits(limits)
    for site, count in rows.items():
        if not is_number(count, whole=True) or count < 0:
            raise Refusal(
                f"{count!r} is not a number of training rows", where=f"site {site}", remedy="count them again"
            )
    row_shares = shares(rows, "training rows")
    weight_shares: Mapping[str, float | None] = dict.fromkeys(rows)
    if weights is not None:
        for site in sorted(set(rows) ^ set(weights)):
            lacking = "weight" if site in rows else "number of rows"
            raise Refusal(f"a chosen site has no {lacking}", where=f"site {site}", remedy="give both for every site")
        for site, weight in weights.items():
            if not is_number(weight) or weight < 0:
                raise Refusal(f"the weight {weight!r} is not possible", where=f"site {site}", remedy="give 0 or more")
        weight_shares = shares(weights, "weight")
    return Dilution(
        tuple(
            DilutedPart(site, int(rows[site]), row_shares[site], weight_shares[site], float(limits.get(site, 1.0)))
            for site in sorted(rows)
        )
    )


def check_limits(limits: Mapping[str, float]) -> None:
    for site, limit in limits.items():
        if not is_number(limit) or not 0 <= limit <= 1:
            remedy = "give the largest share that the site accepts, from 0 to 1"
            raise Refusal(f"the limit {limit!r} is not a share", where=f"site {site}", remedy=remedy)


def settle(
    choose: Callable[[frozenset[str]], PartnerSet], limits: Mapping[str, float], *, asking: str | None = None
) -> Settlement:
    """Choose among the sites of `limits`, let those over their limit withdraw, and choose again until none does.

    `limits` names every possible partner (1 is no limit). The asking site may train along: its rows dilute the others,
    and it does not withdraw from its own study. All who are over their limit withdraw at once. Where the choice is
    everybody who remains, the order could not matter: a share only grows when others leave.
    """
    partners_of = {site: limit for site, limit in limits.items() if site != asking}
    remaining, turns = frozenset(partners_of), list[WithdrawalTurn]()
    while True:
        choice = choose(remaining)
        partners = tuple(sorted(set(choice.rows) - {asking}))
        strangers = sorted(set(partners) - remaining)
        if strangers:
            raise Refusal(
                "the choice took a site that withdrew or was never asked",
                where=f"site {strangers[0]}",
                remedy="choose among the sites that remain",
            )
        if not partners:
            return Settlement((), None, tuple(turns), describe_alone(turns, len(remaining)))
        shown = dilution(choice.rows, choice.weights, partners_of)
        turns.append(WithdrawalTurn(shown, shown.over))
        if not shown.over:
            return Settlement(partners, shown, tuple(turns), describe_training(partners, turns))
        remaining -= set(shown.over)


def is_number(value: object, *, whole: bool = False) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, numeric.Integral) or (
        not whole and isinstance(value, numeric.Real) and math.isfinite(value)
    )


def as_fraction(value: Any) -> Fraction:
    # Numbers of NumPy first become Python's: theirs would overflow inside a fraction.
    return Fraction(int(value) if isinstance(value, numeric.Integral) else float(value))


def shares(amounts: Mapping[str, float], what: str) -> dict[str, float]:
    # In fractions, so that neither huge counts nor tiny weights overflow or vanish.
    exact = {site: as_fraction(amount) for site, amount in amounts.items()}
    total = sum(exact.values())
    if not total:
        raise Refusal(f"the chosen sites have no {what} together", remedy="choose sites that have some")
    return {site: float(amount / total) for site, amount in exact.items()}


def describe_withdrawals(turns: list[WithdrawalTurn]) -> str:
    reasons = [
        f"{part.site} ({max(part.row_share, part.weight_share or 0.0):.1%}, limit {part.limit:.4g})"
        for turn in turns
        for part in turn.dilution.parts
        if part.over
    ]
    return f"Over their own limit, and withdrawn: {', '.join(reasons)}." if reasons else "Nobody withdraws."


def describe_training(partners: tuple[str, ...], turns: list[WithdrawalTurn]) -> str:
    return f"Training goes ahead with {', '.join(partners)}. {describe_withdrawals(turns)}"


def describe_alone(turns: list[WithdrawalTurn], remaining: int) -> str:
    offer = "The asking site can train the local model on its own patients."
    if not turns:
        return f"No partner was chosen. {offer}"
    why = "All partners withdrew." if not remaining else "None of the sites that remain was chosen."
    return f"{why} {describe_withdrawals(turns)} {offer}"
