"""Paired differences against McNemar's and Student's formulas, and verdicts that chance must not make."""

import numpy as np
import pytest
from scipy import stats

from wardround.core.contracts import Scores, Task
from wardround.core.errors import Refusal
from wardround.evaluate.comparison import (
    PairedDifference,
    apply_holm,
    holm,
    paired_difference,
    paired_values,
    tally,
)

ILL = Task((1,), ("well", "ill"))


def answers(right: np.ndarray, actual: np.ndarray, first: list[int] | None = None) -> Scores:
    """Predictions of 0.9 for the true class where right, 0.1 where wrong."""
    given = np.where(right, 0.9, 0.1)
    predicted = np.empty((len(actual), 2))
    predicted[np.arange(len(actual)), actual] = given
    predicted[np.arange(len(actual)), 1 - actual] = 1 - given
    return Scores(predicted, actual, np.array(first or [0, len(actual)]))


def discordant(seed: int, only_a: int = 30, only_b: int = 10) -> tuple[Scores, Scores]:
    """200 patients: a alone is right on `only_a`, b alone on `only_b`, both on the rest."""
    order = np.random.default_rng(seed).permutation(200)
    actual = np.arange(200)[order] % 2
    return answers((np.arange(200) >= only_b)[order], actual), answers((np.arange(200) < 200 - only_a)[order], actual)


def width(one: PairedDifference) -> float:
    assert one.low is not None
    assert one.high is not None
    return one.high - one.low


def test_one_split_has_mcnemars_standard_error() -> None:
    a, b = discordant(0)
    found = paired_difference([a], [b], ILL, "accuracy", resamples=4000, seed=1)
    # (30 - 10) / 200; variance (30 + 10) / 200^2 - (30 - 10)^2 / 200^3 = 0.00095.
    assert found.value == pytest.approx(0.1)
    assert width(found) == pytest.approx(2 * 1.96 * 0.00095**0.5, rel=0.08)
    assert found.verdict == "better"
    assert found.p_value is not None
    assert found.p_value < 0.01
    assert (found.wins, found.ties, found.losses, found.repeats) == (1, 0, 0, 1)


def test_turned_round_it_is_worse_and_the_interval_mirrored() -> None:
    a, b = discordant(0)
    there = paired_difference([a], [b], ILL, "accuracy", seed=1)
    back = paired_difference([b], [a], ILL, "accuracy", seed=1)
    assert back.verdict == "worse"
    assert back.value == pytest.approx(-0.1)
    assert there.low is not None
    assert back.high == pytest.approx(-there.low)
    # Less surprise is better: the sign of the metric turns the verdict, not the difference.
    loss = paired_difference([a], [b], ILL, "log_loss", seed=1)
    assert loss.value is not None
    assert loss.value < 0
    assert loss.verdict == "better"
    assert (loss.wins, loss.losses) == (1, 0)


def test_chance_makes_no_verdict() -> None:
    a, b = discordant(0, only_a=12, only_b=8)
    # McNemar: z = 4 / sqrt(20) = 0.89, p = 0.37.
    found = paired_difference([a], [b], ILL, "accuracy", seed=2)
    assert found.verdict == "no difference shown"
    assert found.p_value == pytest.approx(0.37, abs=0.1)


def test_the_same_patients_tested_four_times_are_not_four_times_the_patients() -> None:
    a, b = discordant(0)
    once = paired_difference([a], [b], ILL, "accuracy", resamples=4000, seed=3)
    four = paired_difference([a] * 4, [b] * 4, ILL, "accuracy", resamples=4000, seed=3)
    assert width(four) == pytest.approx(width(once), rel=0.08)
    # Other patients each time: their chance averages out, by sqrt(4).
    others = [discordant(seed) for seed in range(4)]
    fresh = paired_difference([p for p, _ in others], [q for _, q in others], ILL, "accuracy", resamples=4000, seed=3)
    assert width(fresh) == pytest.approx(width(once) / 2, rel=0.08)
    # Re-splits of one set with a fifth for testing: wider by sqrt(1 + 4 * 0.2 / 0.8) = sqrt(2).
    split = paired_difference(
        [p for p, _ in others], [q for _, q in others], ILL, "accuracy", resamples=4000, test_share=0.2, seed=3
    )
    assert width(split) == pytest.approx(2**0.5 * width(fresh))


def test_repeats_that_disagree_widen_the_interval() -> None:
    gains = [discordant(seed, 30, 10) for seed in range(3)] + [discordant(seed + 9, 10, 30) for seed in range(3)]
    found = paired_difference([p for p, _ in gains], [q for _, q in gains], ILL, "accuracy", seed=4)
    assert found.value == pytest.approx(0)
    assert (found.wins, found.ties, found.losses) == (3, 0, 3)
    # Variance between repeats 0.1^2, within 0.00095, over six repeats.
    assert width(found) == pytest.approx(2 * 1.96 * ((0.01 + 0.00095) / 6) ** 0.5, rel=0.08)


def test_sites_where_one_method_has_no_value_are_left_out_for_both() -> None:
    actual = np.tile([0, 1], 40)
    first = [0, 40, 80]
    everywhere = answers(np.arange(80) != 40, actual, first)
    # b calls nobody ill at the second site: precision is undefined there, and 20/25 at the first. a is a little less
    # precise at the second site (20/21), so that a mean which still counts it would show.
    right = np.ones(80, bool)
    right[[0, 2, 4, 6, 8]] = False
    right[41::2] = False
    gap = paired_difference([everywhere], [answers(right, actual, first)], ILL, "precision", seed=5)
    assert gap.value == pytest.approx(1 - 20 / 25)
    back = paired_difference([answers(right, actual, first)], [everywhere], ILL, "precision", seed=5)
    assert back.value == pytest.approx(20 / 25 - 1)
    alone = paired_difference([everywhere], [answers(right, actual, first)], ILL, "precision", of=1, seed=5)
    assert alone.value is None
    assert alone.reason == "undefined in 1 of 1 repeats; no repeat in which both have a value"


def test_a_site_and_both_means_by_hand() -> None:
    actual = np.tile([0, 1], 40)
    a = answers(np.ones(80, bool), actual, [0, 20, 80])
    b = answers(np.arange(80) >= 10, actual, [0, 20, 80])  # wrong on half of the small site
    assert paired_difference([a], [b], ILL, "accuracy", of="weighted").value == pytest.approx(10 / 80)
    assert paired_difference([a], [b], ILL, "accuracy", of="unweighted").value == pytest.approx(0.5 / 2)
    assert paired_difference([a], [b], ILL, "accuracy", of=0).value == pytest.approx(0.5)


def test_few_patients_and_identical_methods_make_no_verdict() -> None:
    actual = np.array([0, 1] * 4)
    few = paired_difference(
        [answers(np.ones(8, bool), actual)], [answers(np.arange(8) > 4, actual)], ILL, "accuracy", seed=6
    )
    assert few.verdict == "no difference shown"
    assert few.reason == "8 patients are too few to tell (fewer than 20)"
    a, _ = discordant(0)
    same = paired_difference([a], [a], ILL, "accuracy")
    assert (same.value, same.verdict, same.ties) == (0.0, "no difference shown", 1)


def test_same_seed_same_answer() -> None:
    a, b = discordant(0)
    first, again, other = (paired_difference([a], [b], ILL, "roc_auc", resamples=300, seed=s) for s in (1, 1, 2))
    assert first == again
    assert first != other


def test_different_patients_are_refused() -> None:
    a, b = discordant(0)
    swapped = Scores(b.predicted, 1 - b.actual, b.first)
    with pytest.raises(Refusal, match=r"different patients \(repeat 2\)"):
        paired_difference([a, a], [b, swapped], ILL, "accuracy")
    with pytest.raises(Refusal, match="2 repeats and the other 1"):
        paired_difference([a, a], [b], ILL, "accuracy")


def test_figures_alone_agree_with_the_paired_t_test() -> None:
    a, b = [0.81, 0.79, 0.84, 0.80, 0.83], [0.78, 0.80, 0.80, 0.77, 0.79]
    found = paired_values(a, b, higher_is_better=True)
    expected = stats.ttest_rel(a, b)
    assert found.p_value == pytest.approx(expected.pvalue)
    reach = expected.confidence_interval(0.95)
    assert found.low == pytest.approx(reach.low)
    assert found.high == pytest.approx(reach.high)
    assert found.verdict == "better"
    assert (found.wins, found.ties, found.losses) == (4, 0, 1)
    assert paired_values(a, b, higher_is_better=False).verdict == "worse"
    # Nadeau & Bengio: sqrt((1/5 + 0.2/0.8) / (1/5)) = 1.5 times as wide, and the verdict is gone.
    split = paired_values(a, b, higher_is_better=True, test_share=0.2)
    assert width(split) == pytest.approx(1.5 * width(found))
    assert split.verdict == "no difference shown"


def test_figures_that_are_missing_or_too_few() -> None:
    found = paired_values([0.8, None, 0.9], [0.7, 0.6, 0.7], higher_is_better=True)
    assert found.value == pytest.approx(0.15)
    assert found.repeats == 2
    assert found.reason == "undefined in 1 of 3 repeats"
    single = paired_values([0.8], [0.7], higher_is_better=True)
    assert (single.low, single.verdict) == (None, "no difference shown")
    assert paired_values([None], [0.7], higher_is_better=True).value is None
    assert paired_values([0.8, 0.9], [0.8, 0.9], higher_is_better=True).verdict == "no difference shown"


def test_tally_by_hand() -> None:
    assert tally([1.0, 2.0, 3.0, None], [2.0, 2.0, 1.0, 1.0], higher_is_better=True) == (1, 1, 1)
    assert tally([1.0, 1.0, 3.0], [2.0, 2.0, 1.0], higher_is_better=False) == (2, 0, 1)


def test_holm_by_hand() -> None:
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1: 0.02, 0.03, 0.06, 0.04, which may not fall again: 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def test_correction_takes_verdicts_back_but_adds_none() -> None:
    one = PairedDifference(0.1, 0.01, 0.19, 0.03, "better", 5, 0, 0, 5)
    sure = one._replace(p_value=0.001)
    untested = PairedDifference(None, None, None, None, "no difference shown", 0, 0, 0, 0, "no repeat")
    found = apply_holm({"x": one, "y": sure, "z": one._replace(p_value=0.04), "u": untested})
    assert [found[name].verdict for name in "xyz"] == ["no difference shown", "better", "no difference shown"]
    assert [found[name].p_value for name in "xyz"] == [pytest.approx(0.06), pytest.approx(0.003), pytest.approx(0.06)]
    assert found["u"] == untested
