"""What partners earn: a budget in cents divided by one of six rules, exact to the cent.

By rank, inclusion, rounds and weights as the asking site's choice and training give them; by influence after
Richardson, Filos-Ratsikas and Faltings, "Rewarding High-Quality Data via Influence Functions", 2019; by Shapley value
(Shapley 1953; Ghorbani and Zou, "Data Shapley", ICML 2019). These two are measured on rows that the payer holds out and
keeps PRIVATE, as a fall of its loss: positive means that the site's data helped. Who did harm gets nothing, and is not
charged.
Richardson et al. pay each influence for itself and prove, for linear regression, that truthful data are then an
equilibrium. A fixed budget balances to the cent, but a site's part depends on the others' influence too and harm counts
as zero, so that proof does not carry over as it stands.
Cents are whole, so the parts are rounded by largest remainders (Hamilton's method): each is less than a cent from its
exact part, and a larger figure never earns less. Arithmetic is in exact fractions; it costs next to nothing.
"""

import math
import numbers as numeric
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from wardround.core.errors import Refusal


@dataclass(frozen=True)
class Payment:
    """Who gets how many cents, what goes back to the payer, and the same in words."""

    rule: str
    budget: int
    amounts: Mapping[str, int]
    remainder: int
    words: str


class RewardRule(NamedTuple):
    """How a site's figure becomes its claim on the budget."""

    by: str
    qualifies: str
    claim: Callable[[str, Fraction, int], Fraction]
    """Of the site's name, its figure and the number of sites with one."""


def by_rank(site: str, figure: Fraction, sites: int) -> Fraction:
    """The best of n has n shares, the last has one."""
    if figure.denominator != 1 or not 1 <= figure <= sites:
        raise wrong_figure(site, "rank", figure, f"ranks go from 1, the best, to {sites}, the number of ranked sites")
    return sites + 1 - figure


def by_inclusion(site: str, figure: Fraction, sites: int) -> Fraction:
    if figure not in (0, 1):
        raise wrong_figure(site, "inclusion", figure, "give true where the site was chosen, else false")
    return figure


def by_rounds(site: str, figure: Fraction, sites: int) -> Fraction:
    if figure.denominator != 1 or figure < 0:
        raise wrong_figure(site, "number of rounds", figure, "count the rounds that the site really took part in")
    return figure


def by_weights(site: str, figure: Fraction, sites: int) -> Fraction:
    if figure < 0:
        raise wrong_figure(site, "sum of weights", figure, "add up the site's weights, none of which is negative")
    return figure


def by_help(site: str, figure: Fraction, sites: int) -> Fraction:
    return max(figure, Fraction(0))


RULES: Mapping[str, RewardRule] = MappingProxyType(
    {
        "rank": RewardRule("rank", "was ranked", by_rank),
        "inclusion": RewardRule("inclusion", "was chosen", by_inclusion),
        "rounds": RewardRule("rounds taken part in", "took part in a round", by_rounds),
        "weights": RewardRule("the sum of weights", "had any weight", by_weights),
        "influence": RewardRule(
            "influence on the payer's private held-out loss", "lowered the payer's held-out loss", by_help
        ),
        "shapley": RewardRule(
            "Shapley value on the payer's private held-out rows", "has a positive Shapley value", by_help
        ),
    }
)


def reward(rule: str, budget_cents: int, figures: Mapping[str, float | None]) -> Payment:
    """Divide a budget among sites by a rule; a figure of None is a site that never answered, and earns nothing.

    >>> dict(reward("rounds", 100, {"a": 2, "b": 1, "c": 0}).amounts)
    {'a': 67, 'b': 33, 'c': 0}
    """
    if rule not in RULES:
        near = get_close_matches(rule, RULES, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise Refusal(f"there is no reward rule {rule!r}{hint}", remedy=f"use one of {', '.join(RULES)}")
    budget = whole_cents(budget_cents)
    known = {site: as_fraction(rule, site, figure) for site, figure in figures.items() if figure is not None}
    claims = dict.fromkeys(figures, Fraction(0))
    claims.update({site: RULES[rule].claim(site, figure, len(known)) for site, figure in known.items()})
    amounts = apportion(budget, claims)
    return Payment(
        rule, budget, MappingProxyType(amounts), budget - sum(amounts.values()), describe_payment(rule, budget, claims)
    )


def whole_cents(budget: object) -> int:
    if isinstance(budget, bool) or not isinstance(budget, numeric.Integral):
        raise Refusal(f"the budget {budget!r} is no whole number of cents", remedy="give it in whole cents")
    if budget < 0:
        raise Refusal(f"the budget is negative ({money(int(budget))})", remedy="give 0 cents or more")
    return int(budget)


def apportion(budget: int, claims: Mapping[str, Fraction]) -> dict[str, int]:
    """Whole parts in proportion to the claims; the last cents go to the largest remainders, ties by the site's name."""
    total = sum(claims.values())
    if not total:
        return dict.fromkeys(claims, 0)
    quotas = {site: budget * claim / total for site, claim in claims.items()}
    amounts = {site: math.floor(quota) for site, quota in quotas.items()}
    order = sorted(claims, key=lambda site: (amounts[site] - quotas[site], site))
    # Fewer cents are left than there are remainders above zero, so a site without a claim never gets one.
    for site in order[: budget - sum(amounts.values())]:
        amounts[site] += 1
    return amounts


def as_fraction(rule: str, site: str, figure: object) -> Fraction:
    """The figure as a fraction, so that no rounding enters before the cents."""
    boolean = isinstance(figure, bool | np.bool_)
    if boolean and rule == "inclusion":
        return Fraction(bool(figure))
    if not boolean and isinstance(figure, numeric.Rational):
        return Fraction(int(figure.numerator), int(figure.denominator))
    if not boolean and isinstance(figure, numeric.Real) and math.isfinite(figure):
        return Fraction(float(figure))
    raise wrong_figure(site, rule, figure, "give a finite number, or None where the site never answered")


def wrong_figure(site: str, what: str, figure: object, remedy: str) -> Refusal:
    shown = f"{float(figure):g}" if isinstance(figure, Fraction) and figure.denominator > 1 else str(figure)
    return Refusal(f"the {what} {shown} is not possible", where=f"site {site}", remedy=remedy)


def cents(amount: str) -> int:
    """An amount as people write it, in cents; never through a float, which has no 0.1.

    >>> cents("1000.00"), cents("7"), cents("0.5")
    (100000, 700, 50)
    """
    parts = re.fullmatch(r"(-?)([0-9]{1,15})(?:\.([0-9]{1,2}))?", amount.strip())
    if parts is None:
        remedy = "write it like 1000.00: digits, a point, at most two decimals, nothing between the thousands"
        raise Refusal(f"the budget {amount!r} is not an amount of money", remedy=remedy)
    sign, units, decimals = parts.groups(default="")
    return whole_cents(int(f"{sign}{units}{decimals:0<2}"))


def money(cents: int) -> str:
    """Cents as people write them.

    >>> money(123405), money(-7)
    ('1,234.05', '-0.07')
    """
    units, rest = divmod(abs(cents), 100)
    return f"{'-' if cents < 0 else ''}{units:,}.{rest:02}"


def describe_payment(rule: str, budget: int, claims: Mapping[str, Fraction]) -> str:
    by, qualifies, _ = RULES[rule]
    paid = apportion(budget, claims)
    earning = sorted((site for site in claims if claims[site]), key=lambda site: (-paid[site], site))
    if not earning:
        return f"No site {qualifies}: nothing is paid, and the whole budget of {money(budget)} goes back to the payer."
    others = sorted(set(claims) - set(earning))
    nothing = f" Nothing goes to {', '.join(others)}: only a site that {qualifies} earns." if others else ""
    parts = ", ".join(f"{site} {money(paid[site])}" for site in earning)
    return f"{money(budget)} are divided by {by}: {parts}.{nothing}"
