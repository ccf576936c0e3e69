"""The rows that a monitor counts at a site: the patients of a registered table, with the risk that the site's own
model predicts and what became of them. They stay here; the query `outcomes_by_window` counts them in cells."""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.core.contracts import Scores
from wardround.core.errors import Refusal
from wardround.data.cleanup import Cleanup
from wardround.data.table import Table
from wardround.data.value_forms import read_date
from wardround.deploy.home import SiteHome
from wardround.deploy.site.datasets import columns_for, find, frame_of, read_datasets
from wardround.deploy.site.own_model import own_model
from wardround.deploy.site.policy import Policy
from wardround.deploy.site.release.grid_offset import grid_offset
from wardround.monitor.consortium import site_windows
from wardround.monitor.windows import dates_of
from wardround.predict.outcomes import column_of
from wardround.predict.patients import read_patients
from wardround.predict.predictor import Predictor, load_predictor
from wardround.queries.outcomes_by_window import OUTCOME, WINDOW
from wardround.study.file import Study
from wardround.study.monitor_section import MonitorSection


class StudyColumns(NamedTuple):
    """The columns that a study would read at a site, and those that the policy withholds from it."""

    read: list[str]
    withheld: list[str]


def section_of(study: Study) -> MonitorSection:
    assert study.monitor is not None
    return study.monitor


def kept_predictor(home: SiteHome, study: Study) -> Predictor:
    """The model that the trained study left here, as `wardround site predict` uses it."""
    said = section_of(study)
    return load_predictor(own_model(home.folder(said.study), said.study))


def outcome_of(study: Study, predictor: Predictor) -> str:
    return section_of(study).outcome or predictor.facts.task.target


def needed_columns(study: Study, predictor: Predictor) -> tuple[str, ...]:
    """What the model reads of a patient, the date and the outcome."""
    cleanup = Cleanup(**predictor.facts.reading.get("cleaning", {}))
    inputs = [column.name for column in predictor.preparation.columns]
    beside = [since for name, since in cleanup.days.items() if name in inputs and read_date(since) is None]
    return tuple(dict.fromkeys([*inputs, *beside, section_of(study).date, outcome_of(study, predictor)]))


def study_columns(home: SiteHome, study: Study, policy: Policy, columns: Collection[str]) -> StudyColumns:
    """Of these columns; a monitor reads what its model needs, and nothing else."""
    read, withheld = columns_for(study, policy, dict.fromkeys(columns))
    if study.monitor is None:
        return StudyColumns(read, withheld)
    try:
        needed = needed_columns(study, kept_predictor(home, study))
    except Refusal:  # why there is no model is told elsewhere; without one nothing is read
        needed = (study.monitor.date, study.monitor.outcome)
    return StudyColumns([one for one in read if one in needed], [one for one in withheld if one in needed])


def watched_table(
    home: SiteHome, name: str, study: Study, policy: Policy, approved: Collection[str] | None = None
) -> Table:
    """A line for every patient with a date: window, predicted risk, outcome; under the site's name.

    Of the columns `approved` and allowed alone, as in `table_for`. Refused, in words that stay at the site, where the
    model or the table does not allow it.
    """
    said, predictor = section_of(study), kept_predictor(home, study)
    frame = frame_of(name, read_datasets(home)[find(home, name)])
    read, _ = study_columns(home, study, policy, [str(column) for column in frame.columns])
    rows = frame[[column for column in read if approved is None or column in approved]]
    where, outcome = f"data {name}", outcome_of(study, predictor)
    # As they are in the table: the trained study may have turned dates into days.
    came = column_of(rows, said.date, where, remedy="approve the study on a table with dates, with --data").notna()
    if not came.any():
        raise Refusal(f"no row has a date in {said.date!r}", where=where, remedy="choose a table with dates")
    rows = rows[np.asarray(came)].reset_index(drop=True)
    dates = dates_of(rows, said.date, said.date_format, where=where)

    def offset(risk: Any, ill: Any) -> Any:
        # By the key of the study that trained the model: asked again, in whatever study, it gets the same answer.
        return grid_offset(home.folder(said.study), Scores(risk, ill, np.array([0, len(ill)])))

    clean = read_patients(rows, predictor.facts, where=where)
    site = site_windows(predictor, home.settings.name, clean, dates, outcome, every=said.every, offset=offset)
    return Table({site.name: site.table}, OUTCOME, where)


def windows_told(table: Table, cell: int) -> pd.Series:
    """Patients with a known outcome in every window that has as many as a cell."""
    (rows,) = table.sites.values()
    counts = rows[rows[OUTCOME].notna()].groupby(WINDOW).size()
    return counts[counts >= cell]
