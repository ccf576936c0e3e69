import numpy as np
import pytest

from wardround.workflows.pain.scores import (
    PersonScore,
    over,
    rank_table,
    ranks,
    score,
    slice_table,
    table_of,
    weighted,
)


def one(subject, session, frames, value):
    return PersonScore(subject, session, frames, value, value, value)


A = [one("a", 1, 10, 0.5), one("a", 2, 30, 0.9), one("b", 1, 60, 0.6)]


def test_scores_by_hand():
    # Said pain for 0.9, 0.6 and 0.7; true are the first, the second and the last: 2 hits of 3 said, 2 of 3 true.
    # Precision at the ranks of true ones, 0.9 (1st), 0.6 (3rd), 0.2 (4th): (1/1 + 2/3 + 3/4) / 3.
    found = score("a", 1, np.array([0.9, 0.6, 0.7, 0.2]), np.array([1, 1, 0, 1]))
    assert (found.frames, found.acc) == (4, 0.5)
    assert found.f1 == pytest.approx(2 * 2 / (3 + 3))
    assert found.pr_auc == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)


def test_a_session_without_pain_is_masked():
    assert score("a", 1, np.array([0.9, 0.1]), np.array([0, 0])) is None


def test_weighted_mean_and_deviation_by_hand():
    # a: (10 * 0.5 + 30 * 0.9) / 40 = 0.8 with 40 frames, b: 0.6 with 60. Mean 0.68;
    # variance 0.4 * 0.12^2 + 0.6 * 0.08^2.
    assert weighted(A[:2], "acc") == pytest.approx(0.8)
    mean, spread = over(A, "acc")
    assert mean == pytest.approx(0.68)
    assert spread == pytest.approx(np.sqrt(0.4 * 0.12**2 + 0.6 * 0.08**2))


def test_ranks_count_the_methods_that_are_worse():
    methods = {
        "low": [one("a", 1, 5, 0.1), one("b", 1, 5, 0.5)],
        "even": [one("a", 1, 5, 0.4), one("b", 1, 5, 0.5)],
        "high": [one("a", 1, 5, 0.9), one("b", 1, 5, 0.7)],
    }
    # Person a: 0, 1, 2; person b: low and even tie at 0, high beats both.
    assert ranks(methods, "subject", "acc") == {"low": 0, "even": 1, "high": 4}
    assert rank_table(methods, "subject").splitlines()[-1] == "| high | **4** | **4** | **4** |"


def test_people_stand_in_natural_order_and_a_session_without_pain_has_its_column():
    scores = {"F": [one("103", 1, 10, 0.5), one("43", 1, 10, 0.7), one("43", 3, 10, 0.9)]}
    assert slice_table(scores, "subject", "acc").splitlines()[0] == "| acc | 43 | 103 | wt. mean ± SD |"
    assert slice_table(scores, "session", "acc", gaps=True).splitlines() == [
        "| acc | 1 | 2 | 3 | wt. mean ± SD |",
        "|---|---|---|---|---|",
        "| F | **60** | NA | **90** | 70 ± 14 |",
    ]
    assert "| 2 |" not in slice_table(scores, "session", "acc")


def test_tables_have_their_form():
    low = [one("a", 1, 10, 0.4), one("b", 1, 60, 0.604)]
    # 10 frames with 0.4 and 60 with 0.604: mean 0.5749, variance (1/7) 0.1749^2 + (6/7) 0.0291^2, SD 0.071.
    assert table_of({"F-CNN (C)": A, "RANDOM": low}).splitlines()[2:] == [
        "| F-CNN (C) | **68 ± 10** | **68 ± 10** | **68 ± 10** |",
        "| RANDOM | 57 ± 7 | 57 ± 7 | 57 ± 7 |",
    ]
    # By session: (10 * 0.5 + 60 * 0.6) / 70 = 0.586 and 0.9 with 70 and 30 frames. Who has no session 2 has NA there;
    # figures that are written alike are both the best.
    assert slice_table({"F": A, "R": low}, "session", "f1").splitlines() == [
        "| f1 | 1 | 2 | wt. mean ± SD |",
        "|---|---|---|---|",
        "| F | **59** | **90** | 68 ± 14 |",
        "| R | 57 | NA | 57 ± 0 |",
    ]
