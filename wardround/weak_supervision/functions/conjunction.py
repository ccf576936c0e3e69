"""Conjunction: votes where two columns of a table meet a condition each, such as "lactate > 2 and age >= 65"."""

from collections.abc import Sequence

import pandas as pd

from wardround.core.components.recipes import recorded
from wardround.weak_supervision.conditions import all_met, conditions_of
from wardround.weak_supervision.function import KIND, LabelingFunction, Values, settings


@recorded(KIND)
def conjunction(*, condition: str, label: str) -> LabelingFunction:
    """Votes where two columns meet a condition each."""
    found = conditions_of(condition, 2, "conjunction")
    given = settings(condition=condition, label=label)
    columns = tuple(one.column for one in found)
    return LabelingFunction("conjunction", label, columns, given, condition, fires)


def fires(functions: Sequence[LabelingFunction], frame: pd.DataFrame) -> Values:
    return all_met([conditions_of(str(dict(one.given)["condition"]), 2, "conjunction") for one in functions], frame)
