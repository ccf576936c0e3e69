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
from wardround.evaluate.metrics import METRICS, measure_sites
from wardround.evaluate.out_of_fold import Predicted, join_folds
from wardround.evaluate.paired_error import Pair, bootstrap_error, closed_error, figures_at
from wardround.evaluate.rows import rows_of

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
    found = paired_difference([a], [b], ILL, "accuracy")
    # (30 - 10) / 200; variance (30 + 10) / 200^2 - (30 - 10)^2 / 200^3 = 0.00095.
    assert found.value == pytest.approx(0.1)
    assert width(found) == pytest.approx(2 * 1.96 * 0.00095**0.5, rel=0.08)
    assert found.verdict == "better"
    assert found.p_value == pytest.approx(stats.binomtest(10, 40).pvalue)
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
    found = paired_difference([a], [b], ILL, "accuracy")
    assert found.verdict == "no difference shown"
    assert found.p_value == pytest.approx(stats.binomtest(8, 20).pvalue)


@pytest.mark.parametrize(("only_a", "only_b"), [(6, 0), (5, 0), (9, 1), (8, 2), (3, 3), (0, 7), (12, 3)])
def test_verdicts_on_27_patients_are_those_of_the_exact_test(only_a: int, only_b: int) -> None:
    actual = np.arange(27) % 2
    place = np.arange(27)
    a, b = answers(place >= only_b, actual), answers((place < only_b) | (place >= only_a + only_b), actual)
    found = paired_difference([a], [b], ILL, "accuracy")
    expected = stats.binomtest(only_a, only_a + only_b).pvalue
    assert found.p_value == pytest.approx(expected)
    assert found.low is not None
    assert found.high is not None
    assert (found.verdict != "no difference shown") == (expected <= 0.05) == (not found.low <= 0 <= found.high)
    assert found.low <= (only_a - only_b) / 27 <= found.high


def scored(rng: np.random.Generator, patients: int, skill: float) -> tuple[np.ndarray, np.ndarray]:
    actual = (rng.random(patients) < 0.4).astype(int)
    risk = 1 / (1 + np.exp(-(skill * actual + rng.normal(size=patients))))
    return np.stack([1 - risk, risk], axis=1), actual


def test_areas_have_delongs_standard_error() -> None:
    rng = np.random.default_rng(3)
    one, actual = scored(rng, 90, 1.0)
    other = np.clip(one + rng.normal(0, 0.15, one.shape), 0.01, 0.99)
    other[:, 0] = 1 - other[:, 1]
    whole = np.array([0, 90])
    found = paired_difference([Scores(one, actual, whole)], [Scores(other, actual, whole)], ILL, "roc_auc")
    # DeLong, DeLong & Clarke-Pearson 1988, written out: means over rows and columns of the matrix of won pairs.
    ill, well = actual == 1, actual == 0
    won = [(p[ill, 1][:, None] > p[well, 1]) + 0.5 * (p[ill, 1][:, None] == p[well, 1]) for p in (one, other)]
    gap = won[0] - won[1]
    by_ill, by_well = gap.mean(axis=1).var(ddof=1) / ill.sum(), gap.mean(axis=0).var(ddof=1) / well.sum()
    freedom = (by_ill + by_well) ** 2 / (by_ill**2 / (ill.sum() - 1) + by_well**2 / (well.sum() - 1))
    # Two pairs vary together when they share the ill or the well patient; a pair with itself is in both sums.
    once = by_ill + by_well - gap.var() / gap.size
    assert found.value == pytest.approx(gap.mean())
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(gap.mean()) / np.sqrt(once), freedom), rel=1e-6)
    # DeLong's own variance counts it twice, 7 % too much with these 90 patients.
    assert once == pytest.approx(by_ill + by_well, rel=0.1)


@pytest.mark.parametrize(
    "metric", ["roc_auc", "accuracy", "balanced_accuracy", "precision", "recall", "f1", "brier", "log_loss"]
)
def test_closed_forms_agree_with_drawing_patients_again(metric: str) -> None:
    rng = np.random.default_rng(8)
    one, actual = scored(rng, 400, 1.2)
    other = np.clip(one + rng.normal(0, 0.2, one.shape), 0.01, 0.99)
    other[:, 0] = 1 - other[:, 1]
    first = np.array([0, 150, 400])
    pair = Pair(*(rows_of(Scores(p, actual, first), ILL) for p in (one, other)), np.arange(400))
    chosen = METRICS[metric]
    values = chosen.compute(pair.one, None)[0], chosen.compute(pair.other, None)[0]
    figures = figures_at(pair.one.counts, values, "weighted")
    assert figures is not None
    closed = closed_error([pair], [figures], np.ones(1), metric)
    drawn = bootstrap_error([pair], chosen, ["weighted"], [np.ones(1)], 2000, 1)[0]
    assert closed is not None
    assert closed.value == pytest.approx(drawn.value, rel=0.1)


@pytest.mark.parametrize("metric", ["rmse", "mae", "r2"])
def test_closed_forms_of_quantities_agree_with_drawing_patients_again(metric: str) -> None:
    rng = np.random.default_rng(9)
    actual = rng.normal(size=400)
    one, other = actual + rng.normal(size=400), actual + 0.8 * rng.normal(size=400)
    first, number = np.array([0, 150, 400]), Task((1,))
    pair = Pair(*(rows_of(Scores(p, actual, first), number) for p in (one, other)), np.arange(400))
    chosen = METRICS[metric]
    values = chosen.compute(pair.one, None)[0], chosen.compute(pair.other, None)[0]
    figures = figures_at(pair.one.counts, values, "unweighted")
    assert figures is not None
    closed = closed_error([pair], [figures], np.ones(1), metric)
    drawn = bootstrap_error([pair], chosen, ["unweighted"], [np.ones(1)], 2000, 1)[0]
    assert closed is not None
    assert closed.value == pytest.approx(drawn.value, rel=0.1)


def test_folds_rank_patients_of_one_model_only() -> None:
    # Two folds whose models tell the same order at other levels: every pair within a fold is right, two across are not.
    levels = [np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.6, 0.7, 0.8, 0.9])]
    actual, first = np.array([0, 0, 1, 1]), np.array([0, 4])
    folds = [Scores(np.stack([1 - risk, risk], axis=1), actual, first) for risk in levels]
    joined = join_folds([Predicted(one, 4 * number + np.arange(4)) for number, one in enumerate(folds)])
    assert measure_sites(joined.scores, ILL, ["roc_auc"], fold=joined.fold).values["roc_auc"] == 1.0
    # As one model's: the two ill of the first fold stand below the two well of the second, 12 of 16 pairs are right.
    assert measure_sites(joined.scores, ILL, ["roc_auc"]).values["roc_auc"] == 12 / 16


def test_a_patient_counts_once_however_often_it_was_predicted() -> None:
    a, b = discordant(0)
    numbers = np.arange(200)
    halves = [np.arange(200) < 100, np.arange(200) >= 100]

    def part(scores: Scores, mask: np.ndarray) -> Scores:
        return Scores(scores.predicted[mask], scores.actual[mask], np.array([0, int(mask.sum())]))

    whole = paired_difference([a], [b], ILL, "log_loss")
    folds = [[part(one, mask) for mask in halves] for one in (a, b)]
    patients = [numbers[mask] for mask in halves]
    two = paired_difference(*folds, ILL, "log_loss", patients=patients)
    assert (two.value, two.low, two.high) == pytest.approx((whole.value, whole.low, whole.high))
    assert two.repeats == 2
    twice = paired_difference(folds[0] * 2, folds[1] * 2, ILL, "log_loss", patients=patients * 2)
    assert (twice.low, twice.high) == pytest.approx((whole.low, whole.high))


def test_the_level_is_nominal_and_p_values_can_be_small() -> None:
    # Two scores of the same skill, correlated: 400 nulls. With a true level of 5 %, 400 draws reject in 2.4 to 8 % of
    # them (99.5 %); benchmarks/comparison.py does it with trained models, a thousand times.
    rng = np.random.default_rng(0)
    rejected = 0
    for _ in range(400):
        actual = (rng.random(120) < 0.4).astype(int)
        common = rng.normal(size=120) + actual
        one, other = (1 / (1 + np.exp(-(common + rng.normal(size=120)))) for _ in range(2))
        first = np.array([0, 120])
        scores = [Scores(np.stack([1 - p, p], axis=1), actual, first) for p in (one, other)]
        p_value = paired_difference([scores[0]], [scores[1]], ILL, "roc_auc").p_value
        assert p_value is not None
        rejected += p_value < 0.05
    assert 0.024 * 400 <= rejected <= 0.08 * 400
    # Where one method is right and the other guesses, the evidence is as strong as it looks.
    good, actual = scored(rng, 500, 3.0)
    guess = np.full_like(good, 0.5)
    whole = np.array([0, 500])
    sure = paired_difference([Scores(good, actual, whole)], [Scores(guess, actual, whole)], ILL, "roc_auc")
    assert sure.p_value is not None
    assert sure.p_value < 1e-30
    assert sure.verdict == "better"


def test_the_same_patients_tested_four_times_are_not_four_times_the_patients() -> None:
    a, b = discordant(0)
    once = paired_difference([a], [b], ILL, "accuracy")
    four = paired_difference([a] * 4, [b] * 4, ILL, "accuracy")
    assert width(four) == pytest.approx(width(once), rel=0.08)
    # Other patients each time: their chance averages out, by sqrt(4).
    others = [discordant(seed) for seed in range(4)]
    fresh = paired_difference([p for p, _ in others], [q for _, q in others], ILL, "accuracy")
    assert width(fresh) == pytest.approx(width(once) / 2, rel=0.08)
    # Re-splits of N patients with a fifth for testing: the mean of 4 draws of N / 5 has the variance
    # (1 + 0.8 / (0.2 * 4)) / N = 2 / N, against 1 / (4 * 0.2 N) of fresh patients: 1.6 = 1 + 0.2 * (4 - 1) times.
    split = paired_difference([p for p, _ in others], [q for _, q in others], ILL, "accuracy", test_share=0.2)
    assert width(split) == pytest.approx(1.6**0.5 * width(fresh), rel=0.01)


def test_repeats_that_disagree_make_no_verdict() -> None:
    gains = [discordant(seed, 30, 10) for seed in range(3)] + [discordant(seed + 9, 10, 30) for seed in range(3)]
    found = paired_difference([p for p, _ in gains], [q for _, q in gains], ILL, "accuracy", seed=4)
    assert found.value == pytest.approx(0)
    assert (found.wins, found.ties, found.losses, found.verdict) == (3, 0, 3, "no difference shown")
    # 240 of 1200 patients are discordant, evenly: variance 240 / 1200^2.
    assert width(found) == pytest.approx(2 * 1.96 * 240**0.5 / 1200, rel=0.01)


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
        [answers(np.ones(8, bool), actual)], [answers(np.arange(8) > 4, actual)], ILL, "log_loss", seed=6
    )
    assert few.verdict == "no difference shown"
    assert few.reason == "8 patients are too few to tell (fewer than 20)"
    a, _ = discordant(0)
    same = paired_difference([a], [a], ILL, "accuracy")
    assert (same.value, same.verdict, same.ties) == (0.0, "no difference shown", 1)


def test_same_seed_same_answer() -> None:
    a, b = discordant(0)
    first, again, other = (paired_difference([a], [b], ILL, "pr_auc", resamples=300, seed=s) for s in (1, 1, 2))
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
