"""Threshold: votes where one column of a table meets a condition, such as "lactate > 2" or "ward = surgery"."""

from collections.abc import Sequence

import pandas as pd

from wardround.core.components.recipes import recorded
from wardround.weak_supervision.conditions import all_met, conditions_of
from wardround.weak_supervision.function import KIND, LabelingFunction, Values, settings


@recorded(KIND)
def threshold(*, condition: str, label: str) -> LabelingFunction:
    """Votes where a column meets one condition."""
    (one,) = conditions_of(condition, 1, "threshold")
    given = settings(condition=condition, label=label)
    return LabelingFunction("threshold", label, (one.column,), given, condition, fires)


def fires(functions: Sequence[LabelingFunction], frame: pd.DataFrame) -> Values:
    return all_met([conditions_of(str(dict(one.given)["condition"]), 1, "threshold") for one in functions], frame)
