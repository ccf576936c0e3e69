import numpy as np
import pytest
from scipy import stats

from wardround.partners.choice import Evidence
from wardround.partners.similarity.rank_agreement import agreement
from wardround.report.partners.agreement import note_on


def evidence(*scores: float, cut: float = 0.0) -> Evidence:
    return Evidence(np.array(scores, float), np.full(len(scores), np.nan), cut)


@pytest.mark.parametrize("sites", [4, 6, 9, 30])
def test_the_correlation_is_spearmans_ties_included(sites):
    generator = np.random.default_rng(sites)
    a, b = generator.integers(0, 5, (2, sites)).astype(float)
    b = a + b
    told = agreement(evidence(*a), evidence(*b))
    np.testing.assert_allclose(told.spearman, stats.spearmanr(a, b).statistic, rtol=1e-12)
    assert told.sites == sites


def test_chance_counts_the_orders_that_agree_as_well():
    # Of the 3! = 6 orders of three sites one agrees perfectly. One swap of neighbours gives 1 - 6 * 2 / 24 = 0.5, which
    # two orders reach (either pair swapped); with the perfect one, three of six agree at least as well.
    perfect = agreement(evidence(1, 2, 3), evidence(10, 20, 30))
    assert perfect.spearman == 1
    assert perfect.chance == pytest.approx(1 / 6)
    swapped = agreement(evidence(1, 2, 3), evidence(10, 30, 20))
    assert swapped.spearman == pytest.approx(0.5)
    assert swapped.chance == pytest.approx(3 / 6)


def test_chance_of_many_sites_is_students():
    generator = np.random.default_rng(0)
    a = generator.normal(0, 1, 12)
    b = a + generator.normal(0, 1.5, 12)
    expected = stats.spearmanr(a, b, alternative="greater").pvalue
    assert agreement(evidence(*a), evidence(*b)).chance == pytest.approx(expected, rel=1e-9)
    assert agreement(evidence(*a), evidence(*a)).chance == 0
    assert agreement(evidence(*a), evidence(*-a)).chance == 1


def test_only_sites_that_both_have_judged_count():
    told = agreement(evidence(np.nan, 1, 2, 3, 4, 5, 9), evidence(7, 1, 2, 3, 4, 5, np.nan))
    assert (told.sites, told.spearman, note_on(told)) == (5, 1.0, "")


def test_same_side_compares_each_with_its_own_cut():
    # Above 0: no, yes, yes, yes. Above 2.5: no, no, yes, yes. Three of four agree.
    assert agreement(evidence(-1, 1, 2, 3), evidence(1, 2, 3, 4, cut=2.5)).same_side == 0.75


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (evidence(np.nan, 1.0), evidence(1.0, np.nan), "No site"),
        (evidence(1.0), evidence(1.0), "Only one site"),
        (evidence(1, 1, 1, 1, 1), evidence(1, 2, 3, 4, 5), "scores all sites alike"),
    ],
)
def test_where_there_is_no_order_none_is_told(one, other, words):
    told = agreement(one, other)
    assert np.isnan(told.spearman)
    assert words in note_on(told)


def test_few_sites_are_told():
    assert "of the 24 orders" in note_on(agreement(evidence(1, 2, 3, 4), evidence(1, 2, 3, 4)))
    assert note_on(agreement(evidence(1, 2, 3, 4, 5), evidence(1, 2, 3, 4, 5))) == ""
