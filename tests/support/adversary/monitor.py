"""A consortium that trained a model, and sites whose tables now hold the patients of a later year, with dates."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.support import in_process
from wardround.deploy.demo import PURPOSE
from wardround.study.file import Study, parse_study

AGED = "kenema"
"""Where nearly everybody has the outcome from July on."""
PATIENTS = 600


def later_patients(table: Path, *, aged: bool) -> pd.DataFrame:
    """Patients like those of a table, drawn anew, half of them before and half after the middle of 2025."""
    rows = pd.read_csv(table).sample(PATIENTS, replace=True, random_state=3, ignore_index=True)
    days = np.arange(PATIENTS) * 365 // PATIENTS
    rows["admitted"] = (pd.Timestamp("2025-01-01") + pd.to_timedelta(days, unit="D")).strftime("%Y-%m-%d")
    late = days >= 181
    if aged:
        rows.loc[late & (np.arange(PATIENTS) % 20 != 0), "ebola"] = "confirmed"
    return rows


def trained_consortium(folder: Path) -> tuple[in_process.Consortium, Study]:
    """All tables are exchanged after the training, so the same dataset is watched."""
    made, study = in_process.Consortium(folder), in_process.study_of("trained", 2)
    made.conduct(study)
    for name, path in made.tables.items():
        later_patients(path, aged=name == AGED).to_csv(path, index=False)
    return made, study


def monitor_of(trained: str, name: str = "ages", deploy: dict[str, Any] | None = None, **words: Any) -> Study:
    """A study that asks about the model of another, as a file says it."""
    said = {"study": trained, "date": "admitted", "outcome": "ebola", "every": "quarter", **words}
    content = {"study": {"name": name, "purpose": PURPOSE}, "monitor": said, "deploy": deploy or {}}
    return parse_study(content, where="test")
