"""Operations and time of a training with a [budget]: in total, per site and round, and per point of accuracy gained.

Traffic, energy and CO2 are told by the meters, which need the round records only; operations follow from the model.
"""

from collections.abc import Callable, Sequence
from typing import Any

from wardround.core.contracts import Algorithm, Report, RoundRecord, Task
from wardround.engine.machine.operations import operations_of_training
from wardround.study import assemble
from wardround.study.file import Study

OPERATIONS = "operations"


def rows_told(record: RoundRecord) -> int:
    return record.rows


def with_operations(
    meters: dict[str, Any],
    study: Study,
    algorithm: Algorithm,
    task: Task,
    records: Sequence[RoundRecord],
    rows_of: Callable[[RoundRecord], int] = rows_told,
) -> dict[str, Any]:
    """What the meters say, and the operations where the study has a [budget]."""
    if study.budget is None:
        return meters
    a_row = operations_of_training(algorithm, assemble.model_of(study, task), task) * algorithm.passes
    spent = meters["energy"]
    points = spent["watt_hours"] / spent["watt_hours_a_point"] if spent["watt_hours_a_point"] else None
    return {**meters, OPERATIONS: operations_told(a_row, records, points, rows_of)}


def operations_told(
    a_row: float,
    records: Sequence[RoundRecord],
    points: float | None,
    rows_of: Callable[[RoundRecord], int] = rows_told,
) -> Report:
    """From the operations of all passes over a row, rounds, and the points that were gained."""
    total = a_row * sum(rows_of(one) for one in records)
    answers, seconds = sum(one.count for one in records), sum(one.seconds for one in records)
    return {
        "operations": total,
        "operations_a_site_a_round": total / answers if answers else None,
        "operations_a_point": total / points if points else None,
        "seconds_a_round": seconds / len(records) if records else None,
        "seconds_a_point": seconds / points if points else None,
        "words": f"{total:.3g} floating-point operations of matrix products and convolutions.",
    }
