"""Shares by hand, the settlement against all subsets tried, and what must be refused."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.amount import examples
from wardround.core.errors import Refusal
from wardround.incentives.dilution import PartnerSet, dilution, settle

HEART = {"cleveland": 303, "budapest": 294, "va": 200, "zurich": 123}
"""Rows at the four hospitals of the heart disease data: 920 together."""


def everybody(rows):
    return lambda remaining: PartnerSet({site: rows[site] for site in remaining})


def test_shares_of_rows_and_of_weight():
    """123/920 of the rows; weight 2 of 1 + 1 + 1 + 2 = 5."""
    shown = dilution(HEART, {"cleveland": 1, "budapest": 1, "va": 1, "zurich": 2}, {"zurich": 0.3, "va": 0.3})
    parts = {part.site: part for part in shown.parts}
    assert list(parts) == sorted(HEART)
    assert parts["zurich"].row_share == pytest.approx(123 / 920, rel=1e-15)
    assert parts["zurich"].weight_share == pytest.approx(0.4, rel=1e-15)
    assert shown.over == ("zurich",), "by its weight, though not by its rows"
    assert "zurich would be 13.4% of the training rows (123) and 40.0% of the weight: over its limit of 0.3." in str(
        shown
    )
    assert math.fsum(part.row_share for part in shown.parts) == pytest.approx(1, abs=1e-12)


def test_over_by_rows_alone():
    """303/920 = 0.329."""
    assert dilution(HEART, None, {"cleveland": 0.32}).over == ("cleveland",)
    assert dilution(HEART, None, {"cleveland": 0.33}).over == ()


@pytest.mark.parametrize("limit", [0.1, 0.2, 0.3, 0.6, 0.7, 0.9])
def test_exactly_at_the_limit_is_not_over(limit):
    tenths = round(10 * limit)
    assert dilution({"a": tenths, "b": 10 - tenths}, {"a": limit, "b": 1 - limit}, {"a": limit}).over == ()
    assert dilution({"a": 1000 * tenths + 1, "b": 10_000 - 1000 * tenths}, None, {"a": limit}).over == ("a",)


def test_the_rounding_of_weights_puts_nobody_over():
    """0.1 + 0.2 is 0.30000000000000004 in floating point."""
    weights = {"a": 0.1 + 0.2, "b": 0.7}
    assert dilution({"a": 1, "b": 9}, weights, {"a": 0.3}).parts[0].weight_share > 0.3
    assert dilution({"a": 1, "b": 9}, weights, {"a": 0.3}).over == ()


def test_without_a_limit_a_site_accepts_any_share():
    assert dilution({"a": 5}, {"a": 2.0}, {"somebody else": 0.0}).over == ()


def test_numbers_of_numpy_and_of_any_size():
    """2**62 + 2**62 would overflow in 64 bits; 1e308 + 1e308 in a float."""
    shown = dilution({"a": np.int64(2**62), "b": np.int64(2**62)}, {"a": 1e308, "b": np.float64(1e308)}, {})
    assert [(part.row_share, part.weight_share) for part in shown.parts] == [(0.5, 0.5)] * 2
    assert dilution({"a": 1, "b": 3}, {"a": np.float32(1), "b": np.float32(3)}, {}).parts[1].weight_share == 0.75


def test_nobody_over_is_settled_at_once():
    settled = settle(everybody(HEART), dict.fromkeys(HEART, 0.5))
    assert settled.partners == tuple(sorted(HEART))
    assert settled.withdrew == ()
    assert settled.dilution == settled.turns[0].dilution
    assert len(settled.turns) == 1
    assert "Nobody withdraws" in settled.words


def test_one_withdrawal_can_bring_the_next():
    """va: 200/920 = 0.217 > 0.2, leaves. Then zurich: 123/720 = 0.171 > 0.17, leaves. Then cleveland: 303/597 = 0.508,
    budapest: 294/597 = 0.492: both within 0.6."""
    settled = settle(everybody(HEART), {"cleveland": 0.6, "budapest": 0.6, "va": 0.2, "zurich": 0.17})
    assert [turn.withdrew for turn in settled.turns] == [("va",), ("zurich",), ()]
    assert settled.partners == ("budapest", "cleveland")
    assert settled.withdrew == ("va", "zurich")
    assert "va (21.7%, limit 0.2), zurich (17.1%, limit 0.17)" in settled.words


def test_the_choice_is_made_again_among_the_rest():
    """The two largest of those that remain: cleveland + budapest; cleveland leaves (303/597 > 0.5), then budapest + va,
    where budapest has 294/494 = 0.595, within 0.6."""

    def two_largest(remaining):
        chosen = sorted(remaining, key=lambda site: -HEART[site])[:2]
        return PartnerSet({site: HEART[site] for site in chosen})

    settled = settle(two_largest, {"cleveland": 0.5, "budapest": 0.6, "va": 0.6, "zurich": 0.6})
    assert settled.partners == ("budapest", "va")
    assert settled.withdrew == ("cleveland",)


def test_the_asking_site_dilutes_and_never_withdraws():
    """With freetown's 900 rows a has 50/1000 of all, within 0.2; alone with b it would have half."""

    def choose(remaining):
        return PartnerSet({"freetown": 900} | dict.fromkeys(remaining, 50))

    settled = settle(choose, {"a": 0.2, "b": 0.2, "freetown": 0.1}, asking="freetown")
    assert settled.partners == ("a", "b")
    assert settle(everybody({"a": 50, "b": 50}), {"a": 0.2, "b": 0.2}).partners == ()


def test_all_withdrawn_offers_the_local_model():
    settled = settle(
        lambda remaining: PartnerSet({"freetown": 10} | dict.fromkeys(remaining, 50)),
        {"a": 0.2, "b": 0.2},
        asking="freetown",
    )
    assert settled.partners == ()
    assert settled.dilution is None
    assert settled.withdrew == ("a", "b")
    assert settled.words.startswith("All partners withdrew.")
    assert "local model" in settled.words


def test_nobody_chosen_offers_the_local_model():
    settled = settle(lambda remaining: PartnerSet({}), {"a": 1.0})
    assert (settled.partners, settled.turns) == ((), ())
    assert settled.words == "No partner was chosen. The asking site can train the local model on its own patients."


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.sampled_from([0.0, 0.15, 0.21, 0.34, 0.5, 0.77, 1.0])), max_size=6),
)
def test_settles_on_the_largest_set_that_all_accept(sites):
    """Independent: try every subset. Shares fall as a set grows, so the union of accepted sets is accepted too, and
    the largest accepted set is unique."""
    rows = {f"s{i}": n for i, (n, _) in enumerate(sites)}
    limits = {f"s{i}": limit for i, (_, limit) in enumerate(sites)}
    accepted = [
        set(group)
        for size in range(len(rows) + 1)
        for group in itertools.combinations(rows, size)
        if all(rows[site] <= limits[site] * sum(rows[other] for other in group) + 1e-9 for site in group)
    ]
    settled = settle(everybody(rows), limits)
    assert set(settled.partners) == max(accepted, key=len)
    assert len(settled.turns) <= len(rows) + 1
    assert set(settled.partners) | set(settled.withdrew) == set(rows)


def test_each_turn_offers_fewer_sites():
    offered = []

    def choose(remaining):
        offered.append(remaining)
        return PartnerSet(dict.fromkeys(sorted(remaining)[:1], 5))

    settled = settle(choose, dict.fromkeys("abcde", 0.5))
    assert [len(remaining) for remaining in offered] == [5, 4, 3, 2, 1, 0]
    assert settled.withdrew == tuple("abcde")


def test_a_choice_that_takes_who_withdrew_is_refused():
    with pytest.raises(Refusal, match=r"withdrew or was never asked .site a"):
        settle(lambda remaining: PartnerSet({"a": 9, "b": 1}), {"a": 0.5, "b": 1.0})


@pytest.mark.parametrize("limit", [-0.1, 1.1, 50, math.nan, True, "0.5", None])
def test_limits_that_are_no_share(limit):
    with pytest.raises(Refusal, match=r"is not a share .site a"):
        dilution({"a": 1}, None, {"a": limit})


@pytest.mark.parametrize("count", [-1, 1.5, math.nan, True, "7", None])
def test_counts_that_cannot_be(count):
    with pytest.raises(Refusal, match=r"not a number of training rows .site b"):
        dilution({"a": 1, "b": count}, None, {})


@pytest.mark.parametrize("weight", [-0.5, math.inf, math.nan, "1", None])
def test_weights_that_cannot_be(weight):
    with pytest.raises(Refusal, match="site b"):
        dilution({"a": 1, "b": 1}, {"a": 1.0, "b": weight}, {})


def test_weights_for_the_same_sites():
    with pytest.raises(Refusal, match=r"no weight .site b"):
        dilution({"a": 1, "b": 1}, {"a": 1.0}, {})
    with pytest.raises(Refusal, match=r"no number of rows .site c"):
        dilution({"a": 1}, {"a": 1.0, "c": 1.0}, {})


def test_nothing_to_share():
    with pytest.raises(Refusal, match="no training rows together"):
        dilution({"a": 0}, None, {})
    with pytest.raises(Refusal, match="no training rows together"):
        dilution({}, None, {})
    with pytest.raises(Refusal, match="no weight together"):
        dilution({"a": 1}, {"a": 0.0}, {})
