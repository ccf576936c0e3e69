"""One call of a monitor: read the tables, go on from what the last call left, keep the state or change nothing."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd

from wardround.core.contracts import Algorithm
from wardround.core.errors import Refusal
from wardround.core.files import lock_file
from wardround.monitor.bets import Numbers
from wardround.monitor.marks import marks_of, unpack_marks
from wardround.monitor.state import STATE, MonitorState, read_state
from wardround.monitor.summary import MonitorSummary, summarize
from wardround.monitor.surveillance import WatchedRows, begin_state, claims_of, identity_of, watch
from wardround.monitor.windows import dates_of, label_windows, name_windows
from wardround.predict.outcomes import column_of, outcomes_of
from wardround.predict.patients import (
    aligned_rows,
    clean_patients,
    column_as_written,
    open_table,
    read_patients,
    refuse_other_sites,
)
from wardround.predict.predictor import Predictor, load_predictor
from wardround.runs.json_files import write_json
from wardround.runs.model_file import ModelFacts

FIRST = "the first window"


class MonitorSettings(NamedTuple):
    """What a call is told."""

    by: str
    outcome: str | None
    every: str | int
    reference: str | None
    date_format: str | None
    identity: str | None
    alpha: float
    tolerance: float


def monitor_patients(
    run: Path,
    patients: str | pd.DataFrame,
    folder: Path,
    settings: MonitorSettings,
    *,
    site: str | None,
    method: str | None,
    reference: pd.DataFrame | None = None,
    make: Callable[[ModelFacts], Algorithm | None] = lambda _: None,
) -> MonitorSummary:
    """Watch the patients of a table and keep the state; a refusal changes nothing.

    A `reference` in memory goes under the name that the settings give it; `make` is as in `load_predictor`.
    """
    predictor = load_predictor(run, method, site, make=make)
    # Where nothing else is said, dates are written as the study told.
    told = predictor.facts.reading.get("cleaning", {}).get("date_formats", {})
    settings = settings._replace(date_format=settings.date_format or told.get(settings.by))
    table = open_table(patients, predictor.facts)
    # As they are in the table: the study may have turned dates into days.
    dates = dates_of(column_as_written(table, settings.by), settings.by, settings.date_format, where=table.where)
    frame = aligned_rows(clean_patients(table, predictor.facts), predictor.facts)
    refuse_other_sites(frame, predictor.facts, site, where=table.where)
    order = np.argsort(dates.to_numpy(), kind="stable")
    frame, dates = frame.iloc[order].reset_index(drop=True), dates.iloc[order].reset_index(drop=True)
    rows = watched_rows(predictor, frame, dates, settings, where=table.where)
    compared = reference if reference is not None else settings.reference
    with only_one(folder):
        state = read_state(folder)
        if state is not None:
            refuse_other(state, predictor, settings, folder)
        state = watch_rows(state, predictor, rows, dates, settings, site=site, reference=compared)
        write_json(folder / STATE, state.model_dump(mode="json"))
    return summarize(state, predictor.preparation)


def default_folder(run: Path, site: str | None) -> Path:
    """Where the monitor of a run is kept unless somebody says otherwise."""
    return (run if run.is_dir() else run.parent) / ("monitor" if site is None else f"monitor-{quote(site, safe='')}")


def watched_rows(
    predictor: Predictor, frame: pd.DataFrame, dates: "pd.Series[Any]", settings: MonitorSettings, *, where: str
) -> WatchedRows:
    """With predictions, outcomes as far as they are known, and marks."""
    if settings.identity is not None:
        column_of(frame, settings.identity, where, remedy="name the column with --id, or leave it out")
    predicted = predictor.predict(frame, where=where)
    # Without a named column, outcomes are taken where they are: a monitor of inputs needs none.
    named = settings.outcome is not None or predictor.facts.task.target in frame.columns
    blank = named and settings.outcome is None and bool(frame[predictor.facts.task.target].isna().all())
    outcomes = np.full(len(frame), np.nan)
    if named and not blank:
        outcomes = outcomes_of(frame, predictor, settings.outcome, where=where)
    claimed, true = claims_of(predictor, predicted, outcomes)
    columns = [column.name for column in predictor.preparation.columns]
    marks = marks_of(frame, dates, columns, settings.identity, predictor.facts.digest)
    return WatchedRows(frame, claimed, true, marks)


def watch_rows(
    state: MonitorState | None,
    predictor: Predictor,
    rows: WatchedRows,
    dates: "pd.Series[Any]",
    settings: MonitorSettings,
    *,
    site: str | None,
    reference: str | pd.DataFrame | None,
) -> MonitorState:
    """The state after the rows; without one, a first state from the reference or the first window."""
    begin = 0
    if state is None:
        labels = label_windows(dates, settings.every)
        first = np.flatnonzero(labels == labels[0])
        if reference is None:
            known, begin = rows.part(first), len(first)
        else:
            known = reference_rows(predictor, settings, reference)
        state = begin_state(
            predictor,
            known,
            name=settings.reference or FIRST,
            site=site,
            every=settings.every,
            alpha=settings.alpha,
            tolerance=settings.tolerance,
            aside=(settings.by,),
        )
    else:
        labels = label_new(state, rows, dates)
    return watch(state, predictor, rows, labels, begin=begin)


def label_new(state: MonitorState, rows: WatchedRows, dates: "pd.Series[Any]") -> Numbers:
    """Windows of the calendar, or of so many patients, in which those who were counted before do not count again."""
    if not isinstance(state.every, int):
        return label_windows(dates, state.every)
    counted = unpack_marks(state.counted)
    known = pd.Index(counted).get_indexer(pd.Index(rows.marks))
    new = known < 0
    place = np.where(new, len(counted) + np.cumsum(new) - 1, known)
    return name_windows(place, state.every)


def reference_rows(predictor: Predictor, settings: MonitorSettings, reference: str | pd.DataFrame) -> WatchedRows:
    frame = read_patients(reference, predictor.facts)
    dates = pd.Series(pd.NaT, index=frame.index)
    where = reference if isinstance(reference, str) else "the reference"
    return watched_rows(predictor, frame, dates, settings._replace(identity=None), where=where)


def refuse_other(state: MonitorState, predictor: Predictor, settings: MonitorSettings, folder: Path) -> None:
    """A state goes on only as it began."""
    if state.model != identity_of(predictor):
        raise Refusal(
            f"this folder holds the monitor of another model (study {state.study}, {state.method}), or the model was"
            " adapted since",
            where=str(folder / STATE),
            remedy="begin a new monitor in another folder with --out",
        )
    said = {
        "--every": (state.every, settings.every),
        "--false-alarms": (state.alpha, settings.alpha),
        "--tolerance": (state.tolerance, settings.tolerance),
        "--reference": (state.reference, settings.reference or FIRST),
    }
    for option, (began, now) in said.items():
        if began != now:
            raise Refusal(
                f"the monitor began with {option} {began}, and now it is {now}",
                where=str(folder / STATE),
                remedy="go on as it began, or begin a new monitor in another folder with --out",
            )


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Two calls at once would count patients twice: the second waits. A refusal leaves no new folder behind."""
    is_new = not folder.exists()
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Refusal(
            f"the monitor's folder cannot be written to: {error.strerror}",
            where=str(folder),
            remedy="name another with --out",
        ) from None
    try:
        lock_file(lock)
        yield
    except Refusal:
        if is_new:
            path.unlink(missing_ok=True)
            folder.rmdir()
        raise
    finally:
        os.close(lock)
