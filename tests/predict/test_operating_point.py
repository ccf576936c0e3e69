"""Operating points in numbers of patients, by hand."""

import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.evaluate.clinical.operating_point import OperatingRule, choose_threshold
from wardround.predict.operating_point import count_patients, flagged_out_of_fold, parse_rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("youden", OperatingRule("youden")),
        ("specificity=0.8", OperatingRule("specificity", 0.8)),
        ("net-benefit=0.2", OperatingRule("net_benefit", 0.2)),
        # One missed patient is as bad as four false alarms: act from 1 / (1 + 4) on.
        ("cost=1:4", OperatingRule("net_benefit", 0.2)),
        ("threshold=0.3", OperatingRule("threshold", 0.3)),
    ],
)
def test_rules(text, rule):
    assert parse_rule(text) == rule


@pytest.mark.parametrize("text", ["", "sensitivity", "sensitivity=90", "cost=1", "cost=0:1", "auc=0.9", "youden=1"])
def test_what_is_no_rule_is_refused(text):
    with pytest.raises(Refusal, match="is no rule for an operating point"):
        parse_rule(text)


def test_patients_by_hand():
    # Of 10 patients 4 are flagged, 3 of them rightly; 1 of 4 ill is missed. Wilson: 4 of 10 is 0.168 to 0.687.
    flagged = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
    ill = np.array([1, 1, 1, 0, 1, 0, 0, 0, 0, 0])
    found = count_patients(flagged, ill)
    counts = (found.true_positives, found.false_positives, found.false_negatives, found.true_negatives)
    assert counts == (3, 1, 1, 5)
    assert (found.flagged.value, found.flagged_rightly.value, found.sensitivity.value) == (0.4, 0.3, 0.75)
    assert (found.flagged.low, found.flagged.high) == pytest.approx((0.168, 0.687), abs=1e-3)


def test_the_numbers_are_those_of_patients_whom_the_threshold_has_not_seen():
    # Risks that know nothing: on the same patients a threshold by Youden's index looks better than chance, out of fold
    # it does not. Over 40 tables the mean of sensitivity + specificity - 1 is 0 out of fold, with an error of 0.02.
    rng = np.random.default_rng(0)
    inside, outside = [], []
    for _ in range(40):
        risk, ill = rng.uniform(0.1, 0.9, 100), np.repeat([1.0, 0.0], 50)
        seen = risk >= choose_threshold(OperatingRule("youden"), risk, ill).value
        held = flagged_out_of_fold(OperatingRule("youden"), "none", risk, ill, np.arange(100) % 10)
        for flagged, found in ((seen, inside), (held, outside)):
            found.append(flagged[ill == 1].mean() - flagged[ill == 0].mean())
    assert np.mean(inside) > 0.07
    assert np.mean(outside) < 0.04
