"""What a reader asks of predicted survival, horizon by horizon: the risk told and the risk seen, and for whom."""

from typing import Any

import numpy as np

from wardround.core.contracts import Scores, Task
from wardround.evaluate.rows import rows_of
from wardround.evaluate.survival.horizon_calibration import horizon_calibration, observed_risk
from wardround.evaluate.survival.measures import brier_parts, cumulative_risk, observed_risks

GROUPS, FEWEST = 10, 10


def horizon_figures(scores: Scores, task: Task) -> list[dict[str, Any]]:
    """For every horizon, all patients as one: mean risk predicted, risk seen (Kaplan-Meier), and the Brier score.

    Beside it the Brier score of telling everybody the risk that was seen, which a useful model stays below.
    """
    whole = scores._replace(first=np.array([0, len(scores.actual)]))
    rows = rows_of(whole, task)
    time, event = rows.follow_up
    risk = cumulative_risk(rows.probabilities)
    seen = observed_risks(rows)[0, 0]
    same = rows_of(whole._replace(predicted=alike(seen, len(scores.actual))), task)
    parts, plain = brier_parts(rows).mean(axis=0), brier_parts(same).mean(axis=0)
    told = []
    for place, horizon in enumerate(task.horizons):
        share, low, high = observed_risk(time, event, horizon)
        told.append(
            {
                "horizon": float(horizon),
                "predicted": float(risk[:, place].mean()),
                "observed": share,
                "low": low,
                "high": high,
                "events": int((event[time <= horizon]).sum()),
                "followed": int((time >= horizon).sum()),
                "brier": float(parts[place]),
                "brier_same_for_all": float(plain[place]),
            }
        )
    return told


def alike(risks: Any, rows: int) -> Any:
    """Predictions that give every patient these risks by the horizons."""
    chances = np.diff(np.concatenate([[0.0], risks, [1.0]]))
    return np.tile(np.maximum(chances, 0.0), (rows, 1))


def calibration_points(scores: Scores, task: Task) -> list[dict[str, Any]]:
    """Groups of like risk by the last horizon: mean predicted, Kaplan-Meier with its interval, number of patients."""
    rows = rows_of(scores._replace(first=np.array([0, len(scores.actual)])), task)
    if not len(rows.actual) or rows.nonfinite_counts.any():
        return []
    time, event = rows.follow_up
    risk = cumulative_risk(rows.probabilities)[:, -1]
    found = horizon_calibration(time, event, risk, task.horizons[-1], groups=GROUPS, fewest=FEWEST)
    return [
        {"predicted": one.predicted, "observed": one.observed, "rows": one.patients}
        | ({"low": one.low, "high": one.high} if one.low < one.high else {})
        for one in found.groups
    ]
