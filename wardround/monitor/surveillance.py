"""From tables of patients to the state of a monitor: what is new is counted once, window by window, and bet upon."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.data.preparation import TextColumn
from wardround.monitor import bets
from wardround.monitor.bets import Capital, Numbers
from wardround.monitor.cells import FEWEST, begin_column, symbols_of
from wardround.monitor.marks import pack_marks, unpack_marks
from wardround.monitor.state import AlarmRaised, MonitorState, WatchedColumn, WindowTally
from wardround.monitor.tallies import add_columns, add_risks, add_values
from wardround.predict.predictor import Predictor, refuse_survival

PREDICTION = "(prediction)"
ERROR = "(error)"


@dataclass(frozen=True)
class WatchedRows:
    """Rows in the order of their dates, with what the model says of them."""

    frame: pd.DataFrame
    predicted: Numbers
    """The risk, of several classes the confidence in the most probable one, or the value."""
    outcomes: Numbers
    """1 or 0 for whether it came true, or the observed value; NaN where not known yet."""
    marks: Numbers

    def part(self, rows: Numbers) -> "WatchedRows":
        return WatchedRows(self.frame.iloc[rows], self.predicted[rows], self.outcomes[rows], self.marks[rows])

    def __len__(self) -> int:
        return len(self.predicted)


def claims_of(predictor: Predictor, predicted: Numbers, outcomes: Numbers) -> tuple[Numbers, Numbers]:
    """What is claimed of each patient, and whether it came true, as calibration looks at it."""
    if predicted.ndim == 1:
        return np.asarray(predicted, np.float64), outcomes
    positive = predictor.positive
    chosen = predicted.argmax(axis=1) if positive is None else np.full(len(predicted), positive)
    claimed = np.asarray(predicted[np.arange(len(predicted)), chosen], np.float64)
    return claimed, np.where(np.isnan(outcomes), np.nan, outcomes == chosen)


def identity_of(predictor: Predictor) -> str:
    """One word for the model as it is used: another adaptation is another model."""
    adaptation = "" if predictor.adaptation is None else predictor.adaptation.model_dump_json()
    return sha256(f"{predictor.facts.digest} {predictor.site} {adaptation}".encode()).hexdigest()


def values_of(rows: WatchedRows, column: WatchedColumn) -> Any:
    """A column's values as its cells take them."""
    return rows.predicted if column.kind == "prediction" else rows.frame[column.name]


def begin_state(
    predictor: Predictor,
    reference: WatchedRows,
    *,
    name: str,
    site: str | None,
    every: str | int,
    alpha: float,
    tolerance: float,
    aside: Collection[str] = (),
) -> MonitorState:
    """Before anything is watched: cells and counts of the reference.

    Columns set `aside` are not watched: the date by which windows are made moves with every window.
    """
    refuse_survival(predictor, "monitoring")
    if len(reference) < FEWEST:
        raise Refusal(
            f"{len(reference)} patients are too few to compare others with",
            where=name,
            remedy=f"give a table of at least {FEWEST} patients with --reference, or a longer window with --every",
        )
    facts = predictor.facts
    columns = [
        begin_column(one.name, "text", reference.frame[one.name], one.categories)
        if isinstance(one, TextColumn)
        else begin_column(one.name, "number", reference.frame[one.name])
        for one in predictor.preparation.columns
        if one.name not in aside
    ]
    errors = (reference.outcomes - reference.predicted)[~np.isnan(reference.outcomes)]
    watches_errors = not facts.task.classes and len(errors) >= FEWEST
    return MonitorState(
        model=identity_of(predictor),
        study=facts.study,
        method=facts.label,
        target=facts.task.target,
        site=site,
        every=every,
        alpha=alpha,
        tolerance=tolerance,
        reference=name,
        reference_patients=len(reference),
        cut=float(np.median(reference.predicted)),
        threshold=predictor.threshold if predictor.positive is not None else None,
        quantity=not facts.task.classes,
        columns=(*columns, begin_column(PREDICTION, "prediction", reference.predicted)),
        calibration=bets.first_capital(bets.CALIBRATION_BETS),
        error=begin_column(ERROR, "error", errors) if watches_errors else None,
    )


def watch(
    state: MonitorState, predictor: Predictor, rows: WatchedRows, labels: Numbers, *, begin: int = 0
) -> MonitorState:
    """The state after these rows, of which only what is new counts.

    The rows before `begin` are the reference itself: their inputs, and the errors of a quantity, are not bet upon.
    """
    counted, settled = unpack_marks(state.counted), unpack_marks(state.settled)
    new = ~np.isin(rows.marks, counted)
    told = ~np.isin(rows.marks, settled) & ~np.isnan(rows.outcomes)
    for label, place in portions(labels, new | told):
        here = np.zeros(len(rows), bool)
        here[place] = True
        window = next((one for one in state.windows if one.name == label), WindowTally(name=label))
        state, window = watch_inputs(state, window, predictor, rows, here & new, begin)
        state, window = watch_outcomes(state, window, rows, here & told, begin)
        windows = {one.name: one for one in state.windows} | {label: window}
        state = state.model_copy(update={"windows": tuple(windows.values())})
    return state.model_copy(
        update={
            "counted": pack_marks(np.concatenate([counted, rows.marks[new]])),
            "settled": pack_marks(np.concatenate([settled, rows.marks[told]])),
        }
    )


def portions(labels: Numbers, wanted: Numbers) -> Iterator[tuple[str, Numbers]]:
    """The wanted rows window by window, so many at a time that their bets fit into memory."""
    for label in dict.fromkeys(labels[wanted]):
        places = np.flatnonzero(wanted & (labels == label))
        for start in range(0, len(places), bets.AT_ONCE):
            yield label, places[start : start + bets.AT_ONCE]


def watch_inputs(
    state: MonitorState, window: WindowTally, predictor: Predictor, rows: WatchedRows, here: Numbers, begin: int
) -> tuple[MonitorState, WindowTally]:
    """Every column of the rows that are here: counted, ranked, bet upon."""
    place = np.flatnonzero(here)
    part = rows.part(place)
    bettable = place >= begin
    columns, symbols = [], {}
    highest = window.inputs
    for number, column in enumerate(state.columns):
        own = symbols_of(column, values_of(part, column))
        symbols[column.name] = own
        chance = chance_from(part.marks, number)[bettable]
        after, peak = bet_on_ranks(column, own[bettable], chance, is_new=not window.patients)
        columns.append(after)
        highest = max(highest, peak)
        if after.capital.peak >= np.log(state.input_limit):
            state = raised(state, "input", column.name, window.name, after.capital, state.input_limit)
    window = window.model_copy(
        update={
            "patients": window.patients + len(part),
            "columns": add_columns(window.columns, state.columns, symbols, part.frame, predictor.preparation),
            "inputs": highest,
        }
    )
    return state.model_copy(update={"columns": tuple(columns)}), window


def bet_on_ranks(
    column: WatchedColumn, symbols: Numbers, chance: Numbers, *, is_new: bool
) -> tuple[WatchedColumn, float]:
    """The column after its bets on these values, and the highest capital on the way (both as logarithms)."""
    if not len(symbols):
        return column, 0.0
    capital = bets.begin(column.capital) if is_new or not column.capital.starts else column.capital
    ranks, seen = bets.ranks_of(symbols, np.array(column.seen), chance)
    capital, path = bets.bet(capital, bets.rank_bets(ranks))
    return column.model_copy(update={"capital": capital, "seen": tuple(seen.tolist())}), float(path.max())


def watch_outcomes(
    state: MonitorState, window: WindowTally, rows: WatchedRows, here: Numbers, begin: int
) -> tuple[MonitorState, WindowTally]:
    """Outcomes that became known: counted, and bet upon."""
    place = np.flatnonzero(here)
    part = rows.part(place)
    if not len(part):
        return state, window
    is_new = not window.outcomes.patients
    if state.quantity:
        outcomes = add_values(window.outcomes, part.predicted, part.outcomes)
        errors = part.outcomes - part.predicted
        if state.error is None:
            # The first errors are what later ones are ranked among.
            error = begin_column(ERROR, "error", errors) if len(errors) >= FEWEST else None
            peak = 0.0
        else:
            later = place >= begin
            chance = chance_from(part.marks, len(state.columns))[later]
            error, peak = bet_on_ranks(state.error, symbols_of(state.error, errors[later]), chance, is_new=is_new)
        state = state.model_copy(update={"error": error})
        capital = None if error is None else error.capital
    else:
        outcomes = add_risks(window.outcomes, part.predicted, part.outcomes, state.threshold)
        capital = bets.begin(state.calibration) if is_new else state.calibration
        staked = bets.calibration_bets(part.predicted, part.outcomes, state.cut, state.tolerance)
        capital, path = bets.bet(capital, staked)
        peak = float(path.max())
        state = state.model_copy(update={"calibration": capital})
    if capital is not None and capital.peak >= np.log(state.calibration_limit):
        state = raised(state, "calibration", None, window.name, capital, state.calibration_limit)
    window = window.model_copy(update={"outcomes": outcomes, "capital": max(window.capital, peak)})
    return state, window


def chance_from(marks: Numbers, number: int) -> Numbers:
    """Uniform from 0 to 1 for each patient and column, the same in whichever call the patient comes (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = marks + np.uint64(number + 1) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((mixed ^ (mixed >> np.uint64(31))) / 2.0**64)


def raised(
    state: MonitorState, what: Any, column: str | None, window: str, capital: Capital, limit: float
) -> MonitorState:
    """With an alarm, unless it was raised before."""
    if any(alarm.what == what and alarm.column == column for alarm in state.alarms):
        return state
    reached = float(np.exp(min(capital.peak, 700.0)))
    alarm = AlarmRaised(what=what, column=column, window=window, capital=reached, limit=limit)
    return state.model_copy(update={"alarms": (*state.alarms, alarm)})
