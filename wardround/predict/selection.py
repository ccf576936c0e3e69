"""Predictions by a site's rules: whose classifier decided for each patient, and by which rule."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wardround.classifiers.exchange import AskedTask, LoadedClassifier, load_classifier
from wardround.core.errors import Refusal
from wardround.predict.patients import PatientRows
from wardround.queries.columns import kind_of
from wardround.runs.explain.selection_file import Selection
from wardround.selection.rules import WordRule, first_rule

DECIDED = "decided by"
RULE = "rule"
OWN_RULE = "none: the own model decides"


class SelectionPredictor:
    """A site's choice with its classifiers loaded and checked."""

    def __init__(self, selection: Selection, folder: Path) -> None:
        self.selection = selection
        task = selection.facts.task
        self.asked = AskedTask(task.target, tuple(task.classes), task.positive or task.classes[-1], selection.columns)
        self.rules = tuple(WordRule.model_validate(one) for one in selection.rules)
        self.classifiers: dict[str, LoadedClassifier] = {}
        for name, file in selection.files.items():
            path = folder / Path(file).name
            if not path.is_file():
                raise Refusal(
                    f"the classifier of {name} is missing", where=str(path), remedy="run `wardround explain` again"
                )
            self.classifiers[name] = load_classifier(path.read_bytes(), self.asked, source=name)

    def predict(self, frame: pd.DataFrame) -> dict[str, Any]:
        """The columns beside a patient's row: the risk, the outcome it stands for, who decided, by which rule."""
        selection = self.selection
        place = first_rule(self.rules, frame)
        names = np.array([selection.site, *(rule.source for rule in self.rules)], dtype=object)
        who = names[place + 1]
        words = np.array([OWN_RULE, *selection.words], dtype=object)[place + 1]
        risk = np.empty(len(frame))
        limit = np.empty(len(frame))
        for name in dict.fromkeys(who):
            rows = np.flatnonzero(who == name)
            risk[rows] = self.classifiers[name].scores(frame.iloc[rows])
            limit[rows] = selection.thresholds[name]
        task = selection.facts.task
        negative = next(one for one in task.classes if one != self.asked.positive)
        flagged = np.where(risk >= limit, self.asked.positive, negative)
        return {f"probability of {self.asked.positive}": risk, task.target: flagged, DECIDED: who, RULE: words}


def predict_selection(predictor: SelectionPredictor, patients: PatientRows, keep: Sequence[str] = ()) -> pd.DataFrame:
    """One row a patient: the columns to keep, then what is predicted."""
    columns = list(predictor.asked.columns)
    patients.require(columns, "rename the columns, or add them with empty values")
    patients.require(keep, "name columns of the table with --keep")
    found = []
    for piece in patients.pieces([*columns, *keep]):
        frame = piece.reset_index(drop=True)
        for name, kind in predictor.asked.columns.items():
            held = kind_of(frame[name])
            if kind == "number" and held not in ("number", "flag", "empty"):
                raise Refusal(
                    f"column {name!r} holds {held} but numbers were expected",
                    where=patients.where,
                    remedy="clean the column; a word for missing can be named with --setting missing_words=...",
                )
        found.append(pd.DataFrame({**{name: frame[name] for name in keep}, **predictor.predict(frame)}))
    return pd.concat(found, ignore_index=True)
