"""Operating points: from which risk on a classifier says yes, by a name that travels with it."""

from typing import Any, Literal, NamedTuple

import numpy as np

from wardround.core.errors import Refusal
from wardround.evaluate.clinical.operating_point import OperatingRule, choose_threshold

Values = np.ndarray[Any, Any]
Keeps = Literal["local", "own"]
"""Whose threshold another site's classifier keeps: one chosen on the local validation patients, or its own site's."""


class PointOfUse(NamedTuple):
    """An operating point: its name in files, and how its threshold is chosen."""

    name: str
    rule: OperatingRule

    @property
    def words(self) -> str:
        """
        >>> operating_point("specificity", 0.9).words
        'at 10 % false alarms'
        """
        target = self.rule.target
        if self.rule.name == "sensitivity":
            return f"at {target:.3g} sensitivity".replace(f"{target:.3g}", f"{100 * target:.3g} %")
        if self.rule.name == "specificity":
            return f"at {100 * (1 - target):.3g} % false alarms"
        if self.rule.name == "threshold":
            return f"from a risk of {target:.3g} on"
        return "at the best sum of sensitivity and specificity"


def operating_point(kind: str, target: float = 0.0) -> PointOfUse:
    return PointOfUse(f"{kind} {target:g}" if target else kind, OperatingRule(kind, target))


def risk_threshold(point: PointOfUse, risk: Values, outcome: Values, *, where: str = "") -> float:
    """Chosen on validation patients; refused where these have one outcome only."""
    if point.rule.name != "threshold" and len(np.unique(outcome)) < 2:
        raise Refusal(
            "all validation patients have the same outcome, so no operating point can be chosen",
            where=where,
            remedy="give the validation part a larger share, or leave this site out",
        )
    return choose_threshold(point.rule, risk, outcome).value
