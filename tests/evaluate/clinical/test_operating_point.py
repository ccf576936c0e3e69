"""Thresholds by hand and by scikit-learn's ROC curve; counts of patients by hand."""

import numpy as np
import pytest
from sklearn.metrics import classification_report, confusion_matrix, roc_curve

from wardround.core.contracts import Task
from wardround.evaluate.clinical.operating_point import (
    OperatingRule,
    choose_threshold,
    count_flags,
    flags_by_class,
    flags_by_site,
)

RISK = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.8])
ILL = np.array([0, 0, 1, 0, 1, 1])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # From 0.3 on: 3 of 3 found, 1 of 3 falsely: 0.667. From 0.6 on: 2 of 3, none falsely: the same. The lower wins.
        (OperatingRule(), 0.25),
        (OperatingRule("sensitivity", 0.9), 0.25),
        (OperatingRule("sensitivity", 0.6), 0.5),
        (OperatingRule("sensitivity", 0.3), 0.7),
        (OperatingRule("specificity", 0.6), 0.25),
        (OperatingRule("specificity", 1.0), 0.5),
        (OperatingRule("specificity", 0.3), 0.15),
        # Acting at 0.8 a false alarm counts 4 times: 2 found without one beat 3 found with one. At 0.2 it counts 1/4.
        (OperatingRule("net_benefit", 0.8), 0.5),
        (OperatingRule("net_benefit", 0.2), 0.25),
        (OperatingRule("threshold", 0.37), 0.37),
    ],
)
def test_six_patients_by_hand(rule: OperatingRule, expected: float) -> None:
    assert choose_threshold(rule, RISK, ILL).value == pytest.approx(expected)


def test_youden_is_that_of_the_roc_curve_whatever_the_order_and_ties() -> None:
    rng = np.random.default_rng(3)
    risk = np.round(rng.random(400), 2)
    ill = (rng.random(400) < risk).astype(int)
    false, found, _ = roc_curve(ill, risk, drop_intermediate=False)
    for order in (np.arange(400), rng.permutation(400)):
        at = choose_threshold(OperatingRule(), risk[order], ill[order]).value
        flagged = risk >= at
        assert flagged[ill == 1].mean() - flagged[ill == 0].mean() == pytest.approx((found - false).max())


def test_nobody_can_tell_without_both_outcomes() -> None:
    assert choose_threshold(OperatingRule(), RISK[:2], ILL[:2]) == (0.5, "only one outcome among 2 validation patients")
    assert choose_threshold(OperatingRule("sensitivity", 0.9), RISK[:0], ILL[:0]) == (0.5, "no validation patients")
    assert choose_threshold(OperatingRule("threshold", 0.2), RISK[:0], ILL[:0]) == (0.2, "")


def test_counts_and_shares_by_hand() -> None:
    told = count_flags(RISK >= 0.4, ILL)
    names = ("rows", "true_positives", "false_positives", "false_negatives", "true_negatives")
    assert [told[name] for name in names] == [6, 2, 1, 1, 2]
    assert [told[name]["value"] for name in ("sensitivity", "specificity", "ppv", "npv")] == [2 / 3] * 4
    nobody = count_flags(RISK > 1, ILL)
    assert nobody["ppv"] == {"value": None, "undefined": "nobody is flagged"}
    assert nobody["sensitivity"]["value"] == 0
    assert nobody["sensitivity"]["high"] == pytest.approx(0.5615, abs=1e-4)  # Wilson for 0 of 3


def test_sites_add_up_to_all() -> None:
    sites = flags_by_site(RISK, ILL, 0.25, np.array([0, 2, 2, 6]), ["a", "empty", "b"])
    assert sites["a"]["rows"] == 2
    assert sites["a"]["sensitivity"]["undefined"] == "nobody has the outcome"
    assert sites["empty"]["rows"] == 0
    assert sites["b"]["true_positives"] == 3
    assert sum(one["false_positives"] for one in sites.values()) == count_flags(RISK >= 0.25, ILL)["false_positives"]


def test_classes_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(6)
    probabilities, actual = rng.dirichlet(np.ones(3), 200), rng.integers(0, 3, 200)
    task = Task((1,), ("mild", "severe", "well"))
    told = flags_by_class(probabilities, actual, task)
    predicted = probabilities.argmax(axis=1)
    report = classification_report(actual, predicted, target_names=list(task.classes), output_dict=True)
    for index, name in enumerate(task.classes):
        assert told[name]["sensitivity"]["value"] == pytest.approx(report[name]["recall"])
        assert told[name]["ppv"]["value"] == pytest.approx(report[name]["precision"])
        (left, false), (missed, right) = confusion_matrix(actual == index, predicted == index)
        assert told[name]["specificity"]["value"] == pytest.approx(left / (left + false))
        assert told[name]["npv"]["value"] == pytest.approx(left / (left + missed))
        assert told[name]["true_positives"] == right
