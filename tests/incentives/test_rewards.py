"""Numbers by hand, the budget balanced to the cent for any figures, and what must be refused."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.amount import examples
from wardround.core.errors import Refusal
from wardround.incentives.rewards import RULES, reward

SITES = st.text("abcdefgh", min_size=1, max_size=3)
BUDGETS = st.one_of(st.integers(0, 50), st.integers(0, 10**6), st.integers(0, 10**30))
REAL = st.floats(allow_nan=False, allow_infinity=False)
FIGURES = {
    "inclusion": st.booleans(),
    "rounds": st.integers(0, 1000),
    "weights": st.floats(0, 1e300),
    "influence": REAL,
    "shapley": REAL,
}


@st.composite
def cases(draw):
    rule = draw(st.sampled_from(sorted(RULES)))
    if rule == "rank":
        names = draw(st.lists(SITES, unique=True, max_size=8))
        return rule, draw(BUDGETS), {name: draw(st.integers(1, len(names))) for name in names}
    return rule, draw(BUDGETS), draw(st.dictionaries(SITES, st.one_of(st.none(), FIGURES[rule]), max_size=8))


def test_rank_gives_the_best_of_three_three_shares():
    """Shares 3, 2, 1 of 6; 600 cents: 300, 200, 100."""
    assert dict(reward("rank", 600, {"va": 3, "cleveland": 1, "budapest": 2}).amounts) == {
        "va": 100,
        "cleveland": 300,
        "budapest": 200,
    }


def test_equal_ranks_earn_the_same():
    """Ranks 1, 1, 3 of three sites: shares 3, 3, 1 of 7; 700 cents: 300, 300, 100."""
    assert dict(reward("rank", 700, {"a": 1, "b": 1, "c": 3}).amounts) == {"a": 300, "b": 300, "c": 100}


def test_a_site_that_never_answered_has_no_rank_and_makes_none_worse():
    """Two ranked sites: shares 2 and 1 of 3."""
    assert dict(reward("rank", 300, {"a": 2, "b": None, "c": 1}).amounts) == {"a": 100, "b": 0, "c": 200}


def test_inclusion_divides_evenly_and_gives_odd_cents_by_name():
    """100 / 3 = 33 each and one cent left; the three remainders are equal, so the first name has it."""
    payment = reward("inclusion", 100, {"c": True, "b": np.bool_(True), "z": False, "a": True})
    assert dict(payment.amounts) == {"a": 34, "b": 33, "c": 33, "z": 0}
    assert payment.remainder == 0


def test_rounds_by_largest_remainder():
    """10 cents over 5 : 3 : 1 rounds: exact parts 5.56, 3.33, 1.11; floors 5, 3, 1; the last cent to the .56."""
    assert dict(reward("rounds", 10, {"a": 1, "b": 3, "c": 5}).amounts) == {"a": 1, "b": 3, "c": 6}


def test_weights_proportionally():
    """Sums of weights 0.25, 0.75, 1.5 of 2.5: a tenth, three tenths, six tenths."""
    assert dict(reward("weights", 1000, {"a": 0.25, "b": np.float32(0.75), "c": 1.5}).amounts) == {
        "a": 100,
        "b": 300,
        "c": 600,
    }


@pytest.mark.parametrize("rule", ["influence", "shapley"])
def test_harm_earns_nothing_and_is_not_charged(rule):
    """Positive parts 0.5 and 0.25 of 0.75; the harm of b neither costs b nor feeds the others."""
    payment = reward(rule, 300, {"a": 0.5, "b": -7.0, "c": 0.25, "d": 0.0})
    assert dict(payment.amounts) == {"a": 200, "b": 0, "c": 100, "d": 0}
    assert "Nothing goes to b, d" in payment.words


@settings(max_examples=examples(300), deadline=None)
@given(cases())
def test_balances_to_the_cent_and_never_charges(case):
    rule, budget, figures = case
    payment = reward(rule, budget, figures)
    assert sum(payment.amounts.values()) + payment.remainder == budget
    assert set(payment.amounts) == set(figures)
    assert all(isinstance(cents, int) and cents >= 0 for cents in payment.amounts.values())
    earning = [site for site, figure in figures.items() if figure is not None and (rule == "rank" or figure > 0)]
    assert payment.remainder == (0 if earning else budget)
    assert all(payment.amounts[site] == 0 for site in set(figures) - set(earning))


@settings(max_examples=examples(200), deadline=None)
@given(BUDGETS, st.dictionaries(SITES, st.integers(0, 10**9), min_size=1, max_size=8))
def test_each_part_is_within_a_cent_and_more_never_earns_less(budget, rounds):
    """The quota rule of largest remainders, with the exact part computed apart."""
    amounts, total = reward("rounds", budget, rounds).amounts, sum(rounds.values())
    for a in rounds:
        assert total == 0 or abs(amounts[a] - Fraction(budget * rounds[a], total)) < 1
        for b in rounds:
            assert not (rounds[a] > rounds[b] and amounts[a] < amounts[b])
            assert not (rounds[a] == rounds[b] and a < b and amounts[a] < amounts[b])


@settings(max_examples=examples(100), deadline=None)
@given(BUDGETS, st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_sites_does_not_matter(budget, order):
    figures = {"a": 0.1, "b": 0.1, "c": 0.7, "d": 1e-300}
    assert reward("weights", budget, {site: figures[site] for site in order}).amounts == dict(
        reward("weights", budget, figures).amounts
    )


@pytest.mark.parametrize(
    ("rule", "figures"),
    [
        ("rank", {}),
        ("rank", {"a": None}),
        ("inclusion", {"a": False}),
        ("rounds", {"a": 0}),
        ("weights", {"a": 0.0, "b": None}),
        ("influence", {"a": -0.2, "b": 0.0}),
        ("shapley", {"a": -0.2}),
    ],
)
def test_nobody_qualifies_and_the_budget_goes_back(rule, figures):
    payment = reward(rule, 123456, figures)
    assert payment.remainder == 123456
    assert set(payment.amounts.values()) <= {0}
    assert "nothing is paid, and the whole budget of 1,234.56 goes back to the payer" in payment.words


def test_the_words_say_who_gets_what():
    words = reward("rounds", 1000, {"va": 1, "kenema": 4}).words
    assert words == "10.00 are divided by rounds taken part in: kenema 8.00, va 2.00."


def test_a_payment_cannot_be_changed():
    with pytest.raises(TypeError):
        reward("rounds", 10, {"a": 1}).amounts["a"] = 11


@pytest.mark.parametrize("budget", [-1, -(10**20), 1.5, 100.0, True, "100", None])
def test_budgets_that_cannot_be(budget):
    with pytest.raises(Refusal, match="budget"):
        reward("rounds", budget, {"a": 1})


@pytest.mark.parametrize(
    ("rule", "figure"),
    [
        ("rank", 0),
        ("rank", 3),
        ("rank", 1.5),
        ("rank", True),
        ("inclusion", 2),
        ("rounds", -1),
        ("rounds", 2.5),
        ("rounds", True),
        ("rounds", -(10**400)),
        ("weights", -0.1),
        ("weights", math.inf),
        ("influence", math.nan),
        ("shapley", "0.5"),
    ],
)
def test_figures_that_cannot_be_are_refused_with_their_site(rule, figure):
    with pytest.raises(Refusal, match="site kenema"):
        reward(rule, 100, {"freetown": 1, "kenema": figure})


def test_an_unknown_rule_names_the_nearest():
    with pytest.raises(Refusal, match="did you mean 'influence'"):
        reward("influense", 100, {"a": 1})
