"""Patients with numbers, words, codes, flags and gaps at three hospitals; and studies of them, trained here."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wardround.runs.folder import RunFolder
from wardround.study.file import Study, parse_study
from wardround.study.methods import compared_methods, own_method
from wardround.workflows.run import run

HOSPITALS = ("north", "south", "west")
FEATURES = ("age", "lactate", "sex", "ward", "smoker")


def patients(rows: int = 30, seed: int = 0) -> pd.DataFrame:
    """Ages are whole numbers, wards are codes such as "01"; every column but the outcome has gaps."""
    generator = np.random.default_rng(seed)
    total = rows * len(HOSPITALS)
    age, lactate = generator.integers(20, 90, total).astype(float), generator.gamma(3, 0.6, total).round(2)
    sex = generator.choice(["female", "male"], total).astype(object)
    ward = generator.choice(["01", "02", "x3"], total).astype(object)
    smoker = generator.choice([True, False], total).astype(object)
    risk = (age - 55) / 15 + (lactate - 1.8) + (sex == "male") * 0.5
    frame = pd.DataFrame({"age": age, "lactate": lactate, "sex": sex, "ward": ward, "smoker": smoker})
    for name in frame.columns:
        frame.loc[generator.random(total) < 0.1, name] = None
    sick = generator.random(total) < 1 / (1 + np.exp(-risk))
    grade = np.where(risk + generator.normal(size=total) > 1, "severe", np.where(sick, "mild", "none"))
    return frame.assign(
        hospital=np.repeat(HOSPITALS, rows),
        outcome=np.where(sick, "ill", "well"),
        grade=grade,
        days=(5 + 3 * risk + generator.normal(size=total)).round(2),
        patient=[f"P{number:04d}" for number in range(total)],
    )


def study_of(path: Path, *, target: str = "outcome", **tables: Any) -> Study:
    """A study of the CSV file at that path; `tables` add to its tables or take their place."""
    others = [name for name in ("outcome", "grade", "days") if name != target]
    words: dict[str, Any] = {
        "study": {"name": "mixed", "seed": 3, "rounds": 2},
        "data": {
            "source": "csv",
            "path": str(path),
            "site": "hospital",
            "target": target,
            "drop": ["patient", *others],
            "categories": ["ward"],
            "preparation": {"indicators": True},
        },
        "model": {"name": "linear" if target == "days" else "logistic"},
        "algorithm": {"name": "fed_avg", "batch_size": 16},
        "evaluation": {"resamples": 0},
    }
    if target == "outcome":
        words["data"]["positive"] = "ill"
    for name, table in tables.items():
        words[name] = {**words.get(name, {}), **table}
    return parse_study(words, where="test")


def train(study: Study, folder: Path) -> Path:
    """The folder of a run, or of a comparison where the study has one."""
    methods = compared_methods(study) if study.compare else [own_method(study)]
    run(study, RunFolder.create(folder, resume=False), methods, kind="compare" if study.compare else "run")
    return folder
