"""A consortium whose tables number the patients, and a coordinator that lies to one of its sites."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.support import in_process
from tests.support.adversary.actors import LyingCoordinator
from wardround.deploy.protocol.study_id import study_id
from wardround.study.file import Study

SITE = "bo"


def study_of(name: str, rounds: int = 3, **tables: Any) -> Study:
    data = in_process.study_of("x").data.model_dump(mode="json", exclude_none=True)
    return in_process.study_of(name, rounds, data={**data, "split_by": "patient"}, **tables)


def rows_of(consortium: Any) -> pd.DataFrame:
    return pd.read_csv(consortium.tables[SITE])


def liar(consortium: Any, name: str, until: str | None = None, count: int = 1, **tables: Any) -> LyingCoordinator:
    one = LyingCoordinator(consortium, study_of(name, **tables))
    one.conduct(until, count)
    return one


def entries(consortium: Any, kind: str, study: Study) -> list[dict[str, Any]]:
    lines = consortium.homes[SITE].audit_path.read_bytes().splitlines()
    found = [json.loads(line)["entry"] for line in lines]
    return [one for one in found if one["kind"] == kind and one.get("study") == study_id(study)]


def with_patient_numbers(folder: Path) -> in_process.Consortium:
    """Every table has a number of the patient, which the study sets aside."""
    made = in_process.Consortium(folder)
    for path in made.tables.values():
        frame = pd.read_csv(path)
        frame.assign(patient=np.arange(len(frame)) + 1000).to_csv(path, index=False)
    return made


@contextmanager
def keep_policies(consortium: in_process.Consortium) -> Iterator[None]:
    """The sites' policies are afterwards what they were before."""
    texts = {name: home.policy_path.read_text() for name, home in consortium.homes.items()}
    yield
    for name, text in texts.items():
        consortium.homes[name].policy_path.write_text(text)
