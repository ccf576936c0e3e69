"""What a strategy did: whom another site's classifier would decide for, and whether that was right more often."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.evaluate.clinical.proportions import Estimate
from wardround.selection.flips import Flips, count_flips, p_by_patient, success_share

Values = np.ndarray[Any, Any]


class Handled(NamedTuple):
    """The patients that were handed over, in rows: decisions changed, accuracy by both, from whom."""

    rows: int
    all_rows: int
    patients: int
    flips: Flips
    p_value: float
    by_patient: float
    success: Estimate
    local_accuracy: float | None
    other_accuracy: float | None
    sources: tuple[int, ...]
    """Rows by whose classifier decided."""

    @property
    def share(self) -> float:
        return self.rows / self.all_rows if self.all_rows else 0.0


def judge(source: Values, signs: Values, right: Values, patients: Values) -> Handled:
    """`source` is -1 where the own classifier decides; `signs` (sources, rows), `right` (1 + sources, rows)."""
    taken = np.flatnonzero(source >= 0)
    who = source[taken]
    changed = signs[who, taken]
    many = len(taken)
    return Handled(
        rows=many,
        all_rows=len(source),
        patients=len(np.unique(patients[taken])),
        flips=count_flips(changed),
        p_value=count_flips(changed).p_value,
        by_patient=p_by_patient(changed, patients[taken]) if many else 1.0,
        success=success_share(changed, patients[taken]),
        local_accuracy=float(right[0, taken].mean()) if many else None,
        other_accuracy=float(right[1 + who, taken].mean()) if many else None,
        sources=tuple(int(one) for one in np.bincount(who, minlength=len(signs))),
    )


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Corrected for their number (Holm 1979): each times how many are left, never below one before it.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    order = np.argsort(p_values, kind="stable")
    found = np.empty(len(p_values))
    highest = 0.0
    for place, at in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[at]))
        found[at] = highest
    return tuple(float(one) for one in found)
