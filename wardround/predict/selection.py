"""Predictions by a site's rules: whose classifier decided for each patient, and by which rule."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wardround.classifiers.exchange import AskedTask, LoadedClassifier, load_classifier
from wardround.core.errors import Refusal
from wardround.data.preparation import Preparation
from wardround.predict.patients import PatientRows
from wardround.queries.columns import kind_of
from wardround.runs.explain.selection_file import Selection
from wardround.selection.competence import Pick
from wardround.selection.known_patients import KnownPatients, read_known_patients
from wardround.selection.rules import WordRule, first_rule

Values = np.ndarray[Any, Any]

DECIDED = "decided by"
RULE = "rule"
OWN_RULE = "none: the own model decides"
NEARBY = "{source} is more competent among the {k} most similar patients here"


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
        self.known = self._known(folder)

    def _known(self, folder: Path) -> KnownPatients | None:
        """The site's own patients, where a threshold is followed."""
        said = self.selection.threshold
        if said is None:
            return None
        path = folder / Path(said.file).name
        if not path.is_file():
            raise Refusal(
                "the site's known patients are missing, by whom it decides whose model knows more",
                where=str(path),
                remedy="restore the file; it stays at the site and is in no copy that others have",
            )
        return read_known_patients(path.read_bytes(), said.sources, str(path))

    def _nearby(self, frame: pd.DataFrame, free: Values) -> Values:
        """For the rows that no rule takes: which of the threshold's sources decides, -1 for the own model."""
        said = self.selection.threshold
        found = np.full(len(frame), -1)
        rows = np.flatnonzero(free)
        if said is None or self.known is None or not len(rows):
            return found
        some = frame.iloc[rows].reset_index(drop=True)
        x = Preparation.from_json(json.dumps(said.preparation)).apply(some)
        needs = said.pick == "score"
        scores = np.stack([self.classifiers[name].scores(some) for name in said.sources]) if needs else np.empty(0)
        pick: Pick = "score" if needs else "competence"
        found[rows] = self.known.sources(x, scores, said.k, said.epsilon, pick, said.value)
        return found

    def predict(self, frame: pd.DataFrame) -> dict[str, Any]:
        """The columns beside a patient's row: the risk, the outcome it stands for, who decided, by which rule."""
        selection = self.selection
        place = first_rule(self.rules, frame) if self.rules else np.full(len(frame), -1)
        names = np.array([selection.site, *(rule.source for rule in self.rules)], dtype=object)
        who = names[place + 1]
        words = np.array([OWN_RULE, *selection.words], dtype=object)[place + 1]
        near = self._nearby(frame, place < 0)
        if selection.threshold is not None:
            sources, k = selection.threshold.sources, selection.threshold.k
            who = np.where(near >= 0, np.array([*sources, ""], dtype=object)[near], who)
            told = np.array([*(NEARBY.format(source=name, k=k) for name in sources), ""], dtype=object)
            words = np.where(near >= 0, told[near], words)
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
