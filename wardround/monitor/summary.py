"""What a monitor has seen so far, as figures: window by window, and column by column."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from wardround.data.preparation import NumberColumn, Preparation
from wardround.evaluate.clinical.proportions import proportion, wilson_interval
from wardround.evaluate.intervals import interval
from wardround.evaluate.rows import Numbers
from wardround.monitor.drift import RESAMPLES, Distance, kolmogorov_distance, stability_index, stability_indices
from wardround.monitor.state import AlarmRaised, ColumnTally, MonitorState, OutcomeTally, WatchedColumn, WindowTally
from wardround.runs.json_files import as_json

HALF = float(ndtri(0.975))


@dataclass(frozen=True)
class WindowFigures:
    """Predicted and observed, and how good the predictions were, with 95 % intervals."""

    name: str
    patients: int
    known: int
    """Patients whose outcome is known."""
    predicted: float | None
    """The mean prediction, and what was observed among the same patients."""
    observed: Distance
    auc: Distance
    error: Distance
    """The Brier score; of a quantity the mean squared error."""
    sensitivity: Distance
    specificity: Distance
    flagged: Distance
    evidence_calibration: float
    """The highest capital that bets on calibration had in this window, and those on the inputs."""
    evidence_inputs: float
    stability: dict[str, float]
    """The population stability index of every column."""


@dataclass(frozen=True)
class ColumnFigures:
    """One column in the last window, against the reference and against training."""

    name: str
    kind: str
    stability: Distance
    distance: Distance
    """Kolmogorov-Smirnov."""
    missing: float
    missing_reference: float
    outside: float
    """The share beyond the range, or none of the categories, of training."""
    training: Distance
    """The mean, as its distance from the centre of training in scales of training."""
    evidence: float
    """The highest capital of its bets."""


@dataclass(frozen=True)
class MonitorSummary:
    """All figures of a monitor."""

    study: str
    method: str
    target: str
    site: str | None
    quantity: bool
    risk: bool
    """Whether it is the risk of one of two classes; of several classes, how often the predicted one is right."""
    every: str | int
    patients: int
    known: int
    reference: str
    reference_patients: int
    alpha: float
    tolerance: float
    calibration_limit: float
    input_limit: float
    evidence_calibration: float
    watches_calibration: bool
    """Of a quantity only once there were enough errors at a time to rank others among."""
    alarms: tuple[AlarmRaised, ...]
    windows: tuple[WindowFigures, ...]
    columns: tuple[ColumnFigures, ...]
    """Of the last window, the one with most evidence first."""


def summarize(state: MonitorState, preparation: Preparation) -> MonitorSummary:
    """Of all that was watched."""
    windows = windows_in_order(state)
    trained = {column.name: column for column in preparation.columns if isinstance(column, NumberColumn)}
    figures = [
        column_figures(column, windows[-1].columns[column.name], trained.get(column.name))
        for column in state.columns
        if windows and windows[-1].columns
    ]
    capital = state.calibration if state.error is None else state.error.capital
    return MonitorSummary(
        study=state.study,
        method=state.method,
        target=state.target,
        site=state.site,
        quantity=state.quantity,
        risk=state.threshold is not None,
        every=state.every,
        patients=sum(one.patients for one in windows),
        known=sum(one.outcomes.patients for one in windows),
        reference=state.reference,
        reference_patients=state.reference_patients,
        alpha=state.alpha,
        tolerance=state.tolerance,
        calibration_limit=state.calibration_limit,
        input_limit=state.input_limit,
        evidence_calibration=capital_of(capital.peak),
        watches_calibration=not state.quantity or state.error is not None,
        alarms=state.alarms,
        windows=tuple(window_figures(state, window) for window in windows),
        columns=tuple(sorted(figures, key=lambda one: -one.evidence)),
    )


def windows_in_order(state: MonitorState) -> list[WindowTally]:
    """Calendar windows by their date, since patients may be told late; windows of so many patients as they came."""
    if isinstance(state.every, int):
        return list(state.windows)
    return sorted(state.windows, key=lambda window: window.name)


def capital_of(log: float) -> float:
    return float(np.exp(min(log, 700.0)))


def window_figures(state: MonitorState, window: WindowTally) -> WindowFigures:
    told = window.outcomes
    right, wrong, missed, left = told.flags
    flags = told.patients if state.threshold is not None else 0
    columns = {column.name: column for column in state.columns}
    stability = {
        name: float(stability_indices(np.array(columns[name].reference), np.array(tally.counts)))
        for name, tally in window.columns.items()
    }
    return WindowFigures(
        name=window.name,
        patients=window.patients,
        known=told.patients,
        predicted=told.predicted / told.patients if told.patients else None,
        observed=observed_mean(state, told),
        auc=area(told) if state.threshold is not None else Distance(None),
        error=mean_with_error(told.errors, told.errors_squared, told.patients),
        sensitivity=Distance(*proportion(right, right + missed if flags else 0, "")[:3]),
        specificity=Distance(*proportion(left, left + wrong if flags else 0, "")[:3]),
        flagged=Distance(*proportion(right + wrong, flags, "")[:3]),
        evidence_calibration=capital_of(window.capital),
        evidence_inputs=capital_of(window.inputs),
        stability=stability,
    )


def observed_mean(state: MonitorState, told: OutcomeTally) -> Distance:
    """The share with the outcome (Wilson); of a quantity the mean, with an interval from the errors."""
    if not told.patients:
        return Distance(None)
    mean = told.events / told.patients
    if state.quantity:
        half = HALF * float(np.sqrt(told.errors)) / told.patients
        return Distance(mean, mean - half, mean + half)
    low, high = wilson_interval(np.array(told.events), np.array(told.patients))
    return Distance(mean, float(low), float(high))


def mean_with_error(total: float, squares: float, count: int) -> Distance:
    """A mean with a normal interval, from the sums of values and of their squares."""
    if count < 2:
        return Distance(total if count else None)
    mean = total / count
    half = HALF * float(np.sqrt(max(0.0, squares - count * mean**2) / (count - 1) / count))
    return Distance(mean, mean - half, mean + half)


def areas(ill: Numbers, well: Numbers) -> Numbers:
    """Under the ROC curve, of counts over steps of the risk, shape (..., steps); a tie counts one half."""
    below = np.cumsum(well, axis=-1) - well / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((ill * below).sum(axis=-1) / (ill.sum(axis=-1) * well.sum(axis=-1)))


def area(told: OutcomeTally) -> Distance:
    """With a bootstrap interval; steps of the risk are an eighth of the odds wide."""
    ill, well = np.array(told.ill), np.array(told.well)
    if not ill.sum() or not well.sum():
        return Distance(None)
    value = float(areas(ill, well))
    counts = np.concatenate([ill, well])
    drawn = np.random.default_rng(0xA0C).multinomial(counts.sum(), counts / counts.sum(), size=RESAMPLES)
    ends = interval(areas(drawn[:, : len(ill)], drawn[:, len(ill) :]), value)
    return Distance(value, ends.low, ends.high)


def column_figures(column: WatchedColumn, tally: ColumnTally, trained: NumberColumn | None) -> ColumnFigures:
    reference, counts = np.array(column.reference), np.array(tally.counts)
    known = int(counts[:-1].sum())
    # Unscaled columns have no centre of training that a mean could be held against.
    scaled = trained is not None and (trained.center, trained.scale) != (0.0, 1.0) and trained.scale > 0
    return ColumnFigures(
        name=column.name,
        kind=column.kind,
        stability=stability_index(reference, counts),
        distance=kolmogorov_distance(reference, counts) if column.kind != "text" else Distance(None),
        missing=float(counts[-1] / max(1, counts.sum())),
        missing_reference=float(reference[-1] / max(1, reference.sum())),
        outside=tally.outside / max(1, known),
        training=mean_with_error(tally.total, tally.squares, known) if scaled else Distance(None),
        evidence=capital_of(column.capital.peak),
    )


def plain(summary: MonitorSummary) -> dict[str, Any]:
    """For JSON."""
    content: dict[str, Any] = json.loads(
        as_json({**asdict(summary), "alarms": [a.model_dump() for a in summary.alarms]})
    )
    return content
