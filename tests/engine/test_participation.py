"""Who takes part: the same for the same seed, fair, and as cheap for a huge population as for a small one."""

import numpy as np
import pytest
from scipy.stats import chisquare

from wardround.core.errors import Refusal
from wardround.engine.participation import everyone, pattern, random_cohort, random_fraction, restrict


def test_everyone_is_there_every_round() -> None:
    chosen = everyone(3)
    assert chosen.largest == 3
    assert chosen.cohort(1).tolist() == chosen.cohort(99).tolist() == [0, 1, 2]


def test_a_cohort_is_drawn_without_replacement_in_ascending_order() -> None:
    chosen = random_cohort(10, 4, seed=1)
    for number in range(1, 50):
        cohort = chosen.cohort(number).tolist()
        assert cohort == sorted(set(cohort))
        assert len(cohort) == 4 == chosen.largest
        assert 0 <= min(cohort) <= max(cohort) < 10


def test_a_draw_depends_on_seed_and_round_alone() -> None:
    one, two = random_cohort(100, 10, seed=1), random_cohort(100, 10, seed=1)
    later = one.cohort(7).tolist()
    assert [two.cohort(number).tolist() for number in (3, 7, 1)][1] == later == one.cohort(7).tolist()
    assert one.cohort(8).tolist() != later
    assert random_cohort(100, 10, seed=2).cohort(7).tolist() != later


def test_every_site_is_drawn_equally_often() -> None:
    """3 of 9 sites in 3,000 rounds: each is expected 1,000 times; the seed is fixed, so the test is too."""
    chosen = random_cohort(9, 3, seed=5)
    counts = np.bincount(np.concatenate([chosen.cohort(number) for number in range(3000)]), minlength=9)
    assert counts.sum() == 9000
    assert chisquare(counts).pvalue > 0.001


def test_a_draw_costs_what_the_cohort_costs() -> None:
    """A list of 10¹² sites would take 8 TB: the draw can only work if it makes none."""
    cohort = random_cohort(10**12, 1000, seed=3).cohort(1)
    assert len(np.unique(cohort)) == 1000
    assert cohort.min() < 10**11
    assert cohort.max() > 9 * 10**11


@pytest.mark.parametrize("cohort", [0, 11, -1])
def test_an_impossible_cohort_is_refused(cohort: int) -> None:
    with pytest.raises(Refusal, match="from 1 to 10"):
        random_cohort(10, cohort, seed=0)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 5), (0.26, 3), (0.01, 1), (1.0, 10)])
def test_a_fraction_is_rounded_and_never_nobody(share: float, expected: int) -> None:
    chosen = random_fraction(10, share, seed=0)
    assert chosen.largest == len(chosen.cohort(1)) == expected


def test_a_pattern_of_presence_by_hand() -> None:
    """a always; b in rounds 1, 2 and from 5; c in 3 only; d until 2."""
    chosen = pattern(["a", "b", "c", "d"], {"b": "1-2, 5-", "c": "3", "d": "-2"}, 6)
    there = {1: [0, 1, 3], 2: [0, 1, 3], 3: [0, 2], 4: [0], 5: [0, 1], 6: [0, 1]}
    assert {number: chosen.cohort(number).tolist() for number in there} == there
    assert chosen.largest == 3


def test_rounds_past_the_end_do_no_harm() -> None:
    chosen = pattern(["a", "b"], {"b": "2-100"}, 3)
    assert [chosen.cohort(number).tolist() for number in (1, 2, 3)] == [[0], [0, 1], [0, 1]]


@pytest.mark.parametrize("spans", ["", "x", "1-x", "3-1", "0", "0-2", "1,,2", "1-2-3", "1.5", "--2"])
def test_spans_that_name_no_rounds_are_refused(spans: str) -> None:
    with pytest.raises(Refusal, match="site b"):
        pattern(["a", "b"], {"b": spans}, 3)


def test_a_round_without_anybody_and_an_unknown_site_are_refused() -> None:
    with pytest.raises(Refusal, match="o site takes part in round 2"):
        pattern(["a", "b"], {"a": "1,3", "b": "1,3"}, 3)
    with pytest.raises(Refusal, match=r"'c'.*sites are a, b"):
        pattern(["a", "b"], {"c": "1"}, 3)


def test_among_chosen_sites_only_these_take_part() -> None:
    chosen = restrict(pattern(["a", "b", "c"], {"c": "2"}, 3), [2, 0])
    assert [chosen.cohort(number).tolist() for number in (1, 2, 3)] == [[0], [0, 2], [0]]
    assert chosen.largest == 2
    with pytest.raises(Refusal, match="one of the chosen sites takes part in round 1"):
        restrict(pattern(["a", "b", "c"], {"c": "2"}, 3), [2]).cohort(1)
