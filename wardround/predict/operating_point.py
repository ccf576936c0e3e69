"""From which risk on a patient is flagged at a site, and what that means in numbers of its patients.

The rules are those of `evaluate.clinical.operating_point`. A ratio of costs is a net benefit: who holds a false alarm
for FP and a missed patient for FN bad acts from a risk of FP / (FP + FN) on. The numbers of patients are
cross-validated: each patient is judged by a map and a threshold that were fitted without the patient's fold.
"""

import re

import numpy as np
from pydantic import BaseModel, ConfigDict

from wardround.core.errors import Refusal
from wardround.evaluate.clinical.operating_point import OperatingRule, choose_threshold, count_flags
from wardround.evaluate.clinical.proportions import proportion
from wardround.evaluate.rows import Numbers
from wardround.predict.recalibration import MapKind, fit_map

RULES = "sensitivity=0.9, specificity=0.9, net-benefit=0.2, cost=FP:FN such as cost=1:9, threshold=0.3, or youden"
SHARES = {
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "net-benefit": "net_benefit",
    "threshold": "threshold",
}
COST = re.compile(r"(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)")


def parse_rule(text: str) -> OperatingRule:
    """
    >>> parse_rule("sensitivity=0.9")
    OperatingRule(name='sensitivity', target=0.9)
    >>> parse_rule("cost=1:9")
    OperatingRule(name='net_benefit', target=0.1)
    """
    name, _, value = text.partition("=")
    if text == "youden":
        return OperatingRule("youden")
    if name == "cost" and (costs := COST.fullmatch(value)):
        alarm, missed = map(float, costs.groups())
        if alarm > 0 and missed > 0:
            return OperatingRule("net_benefit", alarm / (alarm + missed))
    if name in SHARES:
        try:
            target = float(value)
        except ValueError:
            target = np.nan
        if 0 < target < 1:
            return OperatingRule(SHARES[name], target)
    raise Refusal(f"{text!r} is no rule for an operating point", where="--by", remedy=f"say {RULES}")


class PatientShare(BaseModel):
    """A share of patients with its 95 % interval (Wilson), or the reason why there is none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: float | None
    low: float | None = None
    high: float | None = None
    undefined: str = ""


class FlaggedPatients(BaseModel):
    """Whom the operating point flags."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int
    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int
    flagged: PatientShare
    flagged_rightly: PatientShare
    """Of all patients."""
    sensitivity: PatientShare
    specificity: PatientShare
    ppv: PatientShare
    npv: PatientShare


def count_patients(flagged: Numbers, ill: Numbers) -> FlaggedPatients:
    """The counts and shares that clinicians know, and what flagging means for a hundred patients."""
    counts = count_flags(flagged, ill)
    right, rows = counts["true_positives"], counts["rows"]
    whole = {"flagged": right + counts["false_positives"], "flagged_rightly": right}
    shares = {name: proportion(number, rows, "no patients").plain() for name, number in whole.items()}
    return FlaggedPatients.model_validate({**counts, **shares})


def flagged_out_of_fold(rule: OperatingRule, kind: MapKind, risk: Numbers, ill: Numbers, folds: Numbers) -> Numbers:
    """Whether each patient is flagged by a map and a threshold that know nothing of the patient's fold."""
    flagged = np.zeros(len(ill), bool)
    for fold in np.unique(folds):
        out = folds == fold
        fitted = fit_map(kind, risk[~out], ill[~out])
        assert fitted is not None, "the map was judged on the same folds"
        threshold = choose_threshold(rule, fitted.apply(risk[~out]), ill[~out]).value
        flagged[out] = fitted.apply(risk[out]) >= threshold
    return flagged
