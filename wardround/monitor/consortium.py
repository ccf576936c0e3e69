"""Where a model ages, seen over all sites: each counts its own patients in cells, with the model that it kept."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.core.contracts import Report, Site
from wardround.core.errors import Refusal
from wardround.evaluate.clinical.proportions import wilson_interval
from wardround.predict.outcomes import event_of, outcomes_of
from wardround.predict.predictor import Predictor, Rows
from wardround.queries.cells import step_above
from wardround.queries.outcomes_by_window import FIGURES, OFFSET, OUTCOME, PREDICTED, WINDOW

PERIODS = {"month": "M", "quarter": "Q", "year": "Y"}
FORMS = {"month": "%Y-%m", "quarter": "%Y-Q%q", "year": "%Y"}
FALSE_ALARMS = 0.05
"""The chance, at most, that any verdict of one look is wrong while the model is right everywhere."""


def site_windows(
    predictor: Predictor,
    name: str,
    frame: pd.DataFrame,
    dates: "pd.Series[Any]",
    outcome: str | None = None,
    *,
    every: str = "month",
    offset: Callable[[Rows, Rows], Callable[[str], float]] | None = None,
) -> Site:
    """What the query `outcomes_by_window` looks at, made at the site from its own rows; it stays there.

    `offset` tells from risks and outcomes, by a secret of the site, which way a window's mean risk is rounded.
    """
    if predictor.positive is None:
        raise Refusal(
            "only the risk of one outcome can be counted, and this model predicts something else",
            where=f"model of {predictor.facts.study}",
            remedy="watch it at the site with `wardround monitor`",
        )
    risk = predictor.predict(frame, where=name)[:, predictor.positive]
    ill = event_of(predictor, outcomes_of(frame, predictor, outcome, where=name))
    windows = np.asarray(dates.dt.to_period(PERIODS[every]).dt.strftime(FORMS[every]), dtype=object)
    table = pd.DataFrame({WINDOW: windows, PREDICTED: risk, OUTCOME: ill})
    if offset is not None:
        way = offset(risk, ill)
        table[OFFSET] = [way(window) for window in windows]
    return Site(name, table)


class AgedWindow(NamedTuple):
    """One window at one site, whatever the cells may hide: the share with the outcome lies from `low` to `high`."""

    site: str
    window: str
    """"all" for the site's windows taken together."""
    patients: int
    """At least so many."""
    predicted: float
    """The mean risk as it was told."""
    low: float
    high: float
    verdict: str
    """too low or too high, of the predictions, where no count in the cells could explain it; else empty."""


def aged_windows(report: Report) -> list[AgedWindow]:
    """Every window of every site, and each site's windows together, from the report of the query.

    Intervals are so wide that of all of them together one is wrong with a chance of about `FALSE_ALARMS` at most.
    """
    sites: Mapping[str, Report] = report["sites"]
    level = 1 - FALSE_ALARMS / max(1, sum(len(own["windows"]) for own in sites.values()))
    return [
        judge(site, window, level, own["cell"], *figures)
        for site, own in sites.items()
        for window, *figures in zip(own["windows"], *(own[name] for name in FIGURES), strict=True)
    ]


def judge(site: str, window: str, level: float, cell: int, patients: int, risk: float, observed: int) -> AgedWindow:
    """Of each count a cell less one more may be true, and of a mean risk a step of its grid more or less."""
    hidden, fewest = cell - 1, max(patients, 1)
    most = fewest + hidden
    # The grid follows from the true number of patients, which is no smaller than the told one.
    step = step_above(2 / fewest) if hidden else 0.0
    low = float(wilson_interval(np.array(min(observed, most)), np.array(most), level)[0])
    high = float(wilson_interval(np.array(min(observed + hidden, fewest)), np.array(fewest), level)[1])
    verdict = "too low" if low > risk + step else "too high" if high < risk - step else ""
    return AgedWindow(site, window, int(patients), float(risk), low, high, verdict)
