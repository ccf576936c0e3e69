import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from wardround.api.commands import find_gaps
from wardround.core.errors import Refusal
from wardround.practice_gaps.differences import (
    Difference,
    bootstrap_counts,
    draws_needed,
    gap_verdict,
    paired_difference,
)
from wardround.practice_gaps.scores import accuracy, roc_auc, score_entropy, tnr_at_90_tpr
from wardround.study.file import parse_study

ONE = np.ones((1, 20))


def test_specificity_at_90_percent_by_hand():
    # Ten positives scored 0.1 to 1.0; nine of ten are found from 0.2 on. Of ten negatives scored 0.05, 0.15, ..., 0.95
    # two are below 0.2: 20 %.
    scores = np.concatenate([np.arange(1, 11) / 10, np.arange(0.05, 1, 0.1)])
    outcome = np.repeat([1, 0], 10)
    assert tnr_at_90_tpr(scores, outcome, ONE)[0] == pytest.approx(0.2)
    # Equal scores are flagged together: nobody is left.
    assert tnr_at_90_tpr(np.full(20, 0.5), outcome, ONE)[0] == 0
    assert np.isnan(tnr_at_90_tpr(scores, np.ones(20), ONE)[0])


def test_counts_are_repeated_patients():
    rng = np.random.default_rng(0)
    scores, outcome = rng.random(60).round(1), rng.integers(0, 2, 60)
    counts = bootstrap_counts(rng, 60, 5)
    for weights in counts:
        rows = np.repeat(np.arange(60), weights.astype(int))
        for measure in (tnr_at_90_tpr, roc_auc, accuracy):
            whole = measure(scores[rows], outcome[rows], np.ones((1, len(rows))))[0]
            assert measure(scores, outcome, weights[None])[0] == pytest.approx(whole)
        assert roc_auc(scores, outcome, weights[None])[0] == pytest.approx(roc_auc_score(outcome[rows], scores[rows]))
    assert counts.sum(axis=1).tolist() == [60] * 5


def test_entropy_by_hand():
    # Scores evenly over four of the twenty parts: two bits; all in one: none.
    assert score_entropy(np.array([0.01, 0.21, 0.41, 0.61]), np.ones((1, 4)))[0] == pytest.approx(2)
    assert score_entropy(np.array([0.5, 0.5, 0.5, 1.0]), np.array([[1.0, 1, 1, 0]]))[0] == 0


def test_verdicts():
    better, worse, unclear = Difference(1, 0.5, 2, 0), Difference(-1, -2, -0.5, 0), Difference(0, -1, 1, 1)
    assert gap_verdict(worse, unclear, 3) == "gap"
    assert gap_verdict(better, better, 3) == "performance"
    assert gap_verdict(unclear, better, 3) == "gap"
    assert gap_verdict(unclear, unclear, 3) == "entropy"
    assert gap_verdict(unclear, better, 0.1) == "entropy"  # a model that says the same of everybody


def test_an_interval_covers_a_known_difference():
    # The other model's scores are the own ones with noise: the own AUC is higher, and surely so among 600 patients.
    rng = np.random.default_rng(0)
    outcome = rng.integers(0, 2, 600)
    local = outcome + rng.normal(0, 1, 600)
    found = paired_difference(
        roc_auc, [(local, local + rng.normal(0, 2, 600))], outcome, rng, resamples=500, level=0.05
    )
    assert 0 < found.low < found.value < found.high
    same = paired_difference(roc_auc, [(local, local)], outcome, rng, resamples=200, level=0.05)
    assert (same.value, same.low, same.high) == (0, 0, 0)
    assert draws_needed(1000, 0.05, 56) == 56_000


def study(**gaps):
    return parse_study(
        {
            "study": {"name": "gaps", "seed": 2},
            "data": {"source": "triage", "hospitals": 3, "shares": [0.5, 0.25, 0.25]},
            "gaps": {"resamples": 100, "subsamples": 1, "fewest": 40, **gaps},
        },
        where="study",
    )


def test_every_pair_is_compared_on_the_same_patients(tmp_path):
    result, folder = find_gaps(study(), out=tmp_path / "out")
    assert len(result.gaps) == 6
    assert {gap.verdict for gap in result.gaps} <= {"gap", "performance", "entropy"}
    assert (folder / "report.html").exists()
    assert "Where a gap may be" in (folder / "report.html").read_text()
    for gap in result.gaps:
        assert gap.performance.value == pytest.approx(gap.local_score - gap.other_score)


@pytest.mark.parametrize(
    ("gaps", "said"),
    [
        ({"practice": "diagnosis"}, "Column 'diagnosis', which should name the practice, is missing"),
        ({"organisations": ["Nowhere", "Bo"]}, "There is no organisation called 'Nowhere'"),
        ({"metric": "f1"}, "There is no metric .f1. for gaps"),
        ({"fewest": 5000}, "No practice has enough patients"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, gaps, said):
    with pytest.raises(Refusal, match=said):
        find_gaps(study(**gaps), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
