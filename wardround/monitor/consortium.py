"""Where a model ages, seen over all sites: each counts its own patients in cells, with the model that it kept."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.core.contracts import Report, Site
from wardround.core.errors import Refusal
from wardround.evaluate.clinical.proportions import wilson_interval
from wardround.monitor.windows import label_windows
from wardround.predict.outcomes import event_of, outcomes_of
from wardround.predict.predictor import Predictor
from wardround.queries.outcomes_by_window import OUTCOME, PREDICTED, WINDOW


def site_windows(
    predictor: Predictor, name: str, frame: pd.DataFrame, dates: "pd.Series[Any]", outcome: str | None = None
) -> Site:
    """What the query `outcomes_by_window` looks at, made at the site from its own rows; it stays there."""
    if predictor.positive is None:
        raise Refusal(
            "only the risk of one outcome can be counted, and this model predicts something else",
            where=f"model of {predictor.facts.study}",
            remedy="watch it at the site with `wardround monitor`",
        )
    risk = predictor.predict(frame, where=name)[:, predictor.positive]
    ill = event_of(predictor, outcomes_of(frame, predictor, outcome, where=name))
    return Site(name, pd.DataFrame({WINDOW: label_windows(dates, "month"), PREDICTED: risk, OUTCOME: ill}))


class AgedWindow(NamedTuple):
    """One month at one site, whatever the cells may hide: the share with the outcome lies from `low` to `high`."""

    site: str
    window: str
    patients: int
    expected: float
    """The share that was predicted, in the middle of what the cells leave open."""
    low: float
    high: float
    verdict: str
    """too low or too high, of the predictions, where no count in the cells could explain it; else empty."""


def aged_windows(report: Report, smallest_cell: int = 1) -> list[AgedWindow]:
    """Every month of every site, from the report of the query; `smallest_cell` is the largest that a site used."""
    hidden = smallest_cell - 1
    found = []
    for site, own in report["sites"].items():
        columns = zip(own["windows"], *(own[name] for name in ("patients", "expected", "observed")), strict=True)
        for window, patients, expected, observed in columns:
            low, high = (
                float(wilson_interval(np.array(min(count, of)), np.array(of))[end])
                for end, count, of in ((0, observed, patients + hidden), (1, observed + hidden, patients))
            )
            least, most = expected / (patients + hidden), (expected + (smallest_cell if hidden else 0)) / patients
            verdict = "too low" if low > most else "too high" if high < least else ""
            found.append(AgedWindow(site, window, int(patients), (least + most) / 2, low, high, verdict))
    return found
