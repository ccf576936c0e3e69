"""A site's home with a hundred patients and a policy that allows a small study, and that study."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wardround.deploy.home import SiteHome
from wardround.deploy.party.decisions import Offer, store_offer
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site import datasets
from wardround.deploy.site.enrolment import begin_site, site_settings
from wardround.deploy.site.policy_file import set_policy
from wardround.study.file import Study, parse_study

ROWS = 100


def patients(rows: int = ROWS) -> pd.DataFrame:
    """Two numbers, a word, an identifier and an outcome that both labels have."""
    generator = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "age": generator.integers(20, 90, rows),
            "pulse": generator.normal(80, 9, rows).round(2),
            "sex": np.where(np.arange(rows) % 3 == 0, "f", "m"),
            "patient_id": np.arange(rows) + 4000,
            "outcome": (np.arange(rows) % 2).astype(int),
        }
    )


def study(**tables: Any) -> Study:
    words: dict[str, Any] = {
        "study": {"name": "triage", "rounds": 5, "purpose": "triage research"},
        "data": {"source": "csv", "target": "outcome", "drop": ["patient_id"]},
    }
    for name, table in tables.items():
        words[name] = {**words.get(name, {}), **table} if isinstance(table, dict) else table
    return parse_study(words, where="test")


def make(folder: Path, *, allow: str = "age,pulse,sex,outcome") -> SiteHome:
    """A home in folder/site, with data registered; the smallest cell is what a study can say today."""
    home = begin_site(folder / "site", site_settings("freetown", "hub.example.org:8002", "hub"), ["triage research"])
    patients().to_csv(folder / "patients.csv", index=False)
    datasets.add(home, "patients", "csv", {"path": str(folder / "patients.csv")})
    set_policy(home.policy_path, "columns", allow)
    set_policy(home.policy_path, "smallest_cell", "1")
    return home


def offered(home: SiteHome, asked: Study | None = None, submitter: str = "anna", **more: Any) -> Offer:
    asked = asked or study()
    return store_offer(home, study_id(asked), asked.model_dump(mode="json"), submitter, **more)
