"""What a site does in an exchange of classifiers, with nothing but its own table: fit, choose, count, keep.

The parts are drawn from the site's own rows with the analysis' seed: 40 % to train, 30 % to choose, 30 % to judge.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround import __version__
from wardround.classifiers.exchange import AskedTask, LoadedClassifier, load_classifier
from wardround.classifiers.local_fit import fit_classifier, local_preparation
from wardround.classifiers.onnx_file import with_thresholds
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.data.preparation import Preparation
from wardround.data.row_split import split
from wardround.queries.columns import as_text
from wardround.runs.explain.selection_file import (
    NAME,
    CompetenceThreshold,
    Selection,
    classifier_file,
    selection_bytes,
)
from wardround.runs.model_file import ModelFacts
from wardround.runs.sites import PredictionTask
from wardround.selection.known_patients import FILE, KnownPatients, known_patients
from wardround.selection.operating_points import risk_threshold
from wardround.selection.settings import SelectionSettings
from wardround.selection.site_choice import PatientPart, SiteChoice, Strategy, choose_at_site, confirmed_in

Values = np.ndarray[Any, Any]
SHARES = (0.4, 0.3, 0.3)
STRATEGIES = ("rules", "hybrid", "threshold")
SLACK = 1e-6
FEWEST = 60
"""Rows below which a site sends nothing and chooses nothing."""


class SiteQuestion(NamedTuple):
    """What all sites are asked."""

    classifier: str
    patient: str
    settings: SelectionSettings
    seed: int
    room: int
    smallest_cell: int


class HomeChoice(NamedTuple):
    """A site's choice, and what it was made from; none of it leaves the site but counts."""

    site: str
    own: bytes
    others: tuple[bytes, ...]
    choice: SiteChoice
    confirmed: frozenset[tuple[str, str, str]]
    rows: tuple[int, int]
    task: AskedTask
    known: KnownPatients
    names: tuple[str, ...]
    """What the others are called here."""
    preparation: Preparation
    settings: SelectionSettings

    def files(self) -> dict[str, bytes]:
        """What the site keeps: the confirmed strategy of the first operating point, and what following it needs."""
        cell = next((one for one in self.choice.cells if one.keeps == self.settings.keeps), self.choice.cells[0])
        found = [name for name in STRATEGIES if (cell.point.name, cell.keeps, name) in self.confirmed]
        strategy = cell.strategies[found[0]] if found else None
        used = self.choice.listed[: strategy.rules] if strategy is not None else ()
        limit = competence_threshold(
            strategy, self.choice.k.k, self.settings, self.names, json.loads(self.preparation.to_json())
        )
        near = {} if limit is None else {name: 1 + at for at, name in enumerate(self.names)}
        places = {self.site: 0, **{one.rule.source: 1 + one.source for one in used}, **near}
        contents = (self.own, *self.others)
        task = PredictionTask(
            kind="classification",
            target=self.task.target,
            classes=self.task.classes,
            features=tuple(self.task.columns),
            positive=self.task.positive,
        )
        told = Selection(
            site=self.site,
            study="classifier_selection",
            point=cell.point.words,
            facts=ModelFacts(
                wardround=__version__,
                study="classifier_selection",
                method="explain",
                label="classifier selection",
                rounds=0,
                task=task,
                shape=(len(self.task.columns),),
                recipe=None,
                preparation=None,
            ),
            columns=dict(self.task.columns),
            thresholds={name: cell.thresholds[place] for name, place in places.items()},
            files={name: classifier_file(name) for name in places},
            rules=tuple(one.rule.model_dump(mode="json", exclude_none=True) for one in used),
            words=tuple(one.rule.words() for one in used),
            strategy="rules" if strategy is None else strategy.name,
            threshold=limit,
        )
        files = {classifier_file(name): contents[place] for name, place in places.items()}
        rows = {} if limit is None else {FILE: self.known.content()}
        return {**files, **rows, NAME: selection_bytes(told)}


def competence_threshold(
    strategy: Strategy | None,
    k: int,
    settings: SelectionSettings,
    sources: Sequence[str],
    preparation: Mapping[str, Any],
) -> CompetenceThreshold | None:
    """What following a strategy needs beside its rules; none where it has no threshold."""
    if strategy is None or strategy.threshold is None:
        return None
    return CompetenceThreshold(
        value=strategy.threshold,
        k=k,
        epsilon=settings.epsilon,
        pick=settings.pick,
        sources=tuple(sources),
        preparation=dict(preparation),
        file=FILE,
    )


class _Parts(NamedTuple):
    frame: pd.DataFrame
    outcome: Values
    patients: Values
    parts: tuple[Values, Values, Values]


def _parts(question: SiteQuestion, task: AskedTask, site: Site) -> _Parts | None:
    """The site's rows whose outcome is known, split; none where they are too few to say anything about."""
    texts = as_text(site.table[task.target])
    known = np.flatnonzero(~pd.isna(texts))
    if len(known) < max(FEWEST, question.smallest_cell):
        return None
    frame = site.table.iloc[known].reset_index(drop=True)
    outcome = (texts[known] == task.positive).astype(np.int64)
    who = pd.factorize(frame[question.patient])[0] if question.patient else np.arange(len(frame))
    by = who if question.patient else None
    parts = split(len(frame), seed=question.seed, site=site.name, shares=SHARES, strata=outcome.astype(str), by=by)
    return _Parts(frame[list(task.columns)], outcome, who, parts)


def _fitted(question: SiteQuestion, task: AskedTask, site: Site, rows: _Parts) -> bytes:
    """The same bytes whenever the same site is asked, so that it knows its own file among all."""
    train, validation = rows.parts[0], rows.parts[1]
    frame = rows.frame.iloc[train].reset_index(drop=True)
    preparation = local_preparation(site.name, frame, task, smallest_cell=question.smallest_cell)
    content = fit_classifier(
        site.name,
        question.classifier,
        frame,
        rows.outcome[train],
        rows.patients[train],
        task,
        preparation,
        seed=question.seed,
    )
    loaded = load_classifier(content, task, source=site.name)
    risk = loaded.scores(rows.frame.iloc[validation])
    points = question.settings.points
    return with_thresholds(content, {one.name: risk_threshold(one, risk, rows.outcome[validation]) for one in points})


def own_file(question: SiteQuestion, task: AskedTask, site: Site) -> Values:
    """The site's classifier in a room of fixed size, its length first; a length of 0 where it has none to send."""
    packed = np.zeros(question.room + 1)
    rows = _parts(question, task, site)
    if rows is None:
        return packed
    try:
        content = _fitted(question, task, site, rows)
    except Refusal:
        return packed
    if len(content) <= question.room:
        packed[0] = len(content)
        packed[1 : 1 + len(content)] = np.frombuffer(content, np.uint8)
    return packed


def unpacked(packed: Values) -> bytes:
    """The file in a room; refused where the room does not hold bytes."""
    size = int(packed[0]) if packed.ndim == 1 and len(packed) else -1
    body = packed[1 : 1 + max(0, size)]
    if not 0 < size < len(packed) or np.any((body < 0) | (body > 255) | (body != np.floor(body))):
        raise Refusal("a classifier that was sent is no file", remedy="ask the coordinator to begin again")
    return bytes(body.astype(np.uint8))


def choose_at_home(question: SiteQuestion, task: AskedTask, site: Site, files: list[Values]) -> HomeChoice | None:
    """The site's choice among all files that came; one that is refused is left out, and the others are used."""
    rows = _parts(question, task, site)
    if rows is None:
        return None
    try:
        own = _fitted(question, task, site, rows)
    except Refusal:
        return None
    loaded: list[LoadedClassifier] = []
    others: list[bytes] = []
    for place, packed in enumerate(files):
        try:
            content = unpacked(packed)
            if content != own:
                loaded.append(load_classifier(content, task, source=f"hospital {place + 1}"))
                others.append(content)
        except Refusal:
            continue
    mine = load_classifier(own, task, source=site.name)
    kept = [at for at, one in enumerate(loaded) if has_risks(one, rows)]
    loaded, others = [loaded[at] for at in kept], [others[at] for at in kept]
    if not loaded:
        return None
    train = rows.frame.iloc[rows.parts[0]].reset_index(drop=True)
    preparation = local_preparation(site.name, train, task, smallest_cell=question.smallest_cell)
    parts = []
    for part in rows.parts[1:]:
        frame = rows.frame.iloc[part].reset_index(drop=True)
        scores = np.stack([one.scores(frame) for one in (mine, *loaded)])
        parts.append(PatientPart(frame, preparation.apply(frame), rows.outcome[part], rows.patients[part], scores))
    try:
        choice = choose_at_site(
            parts[0],
            parts[1],
            [one.source for one in loaded],
            [one.thresholds for one in loaded],
            question.settings,
            seed=question.seed,
            where=f"site {site.name}",
        )
    except Refusal:
        return None
    confirmed = frozenset(confirmed_in(choice.cells, question.settings.level))
    sizes = (len(parts[0].outcome), len(parts[1].outcome))
    known = known_patients(parts[0].x, parts[0].scores, parts[0].outcome)
    names = tuple(one.source for one in loaded)
    return HomeChoice(
        site.name, own, tuple(others), choice, confirmed, sizes, task, known, names, preparation, question.settings
    )


def has_risks(classifier: LoadedClassifier, rows: _Parts) -> bool:
    """Whether it gives risks between 0 and 1 for all of the site's own patients; one that does not is left out."""
    try:
        scores = [classifier.scores(rows.frame.iloc[part].reset_index(drop=True)) for part in rows.parts[1:]]
    except Refusal:
        return False
    return all(bool(np.all((one >= -SLACK) & (one <= 1 + SLACK))) for one in scores)


def counts_of(question: SiteQuestion, found: HomeChoice | None) -> Values:
    """(points, strategies, 7): rows, what was handed over and changed, two flags; 0 where nothing was chosen."""
    points = question.settings.points
    told = np.zeros((len(points), len(STRATEGIES), 7))
    if found is None:
        return told
    for at, point in enumerate(points):
        keeps = question.settings.keeps
        cells = [one for one in found.choice.cells if one.point.name == point.name]
        cell = next((one for one in cells if one.keeps == keeps), cells[0])
        for place, name in enumerate(STRATEGIES):
            one = cell.strategies[name]
            confirmed = (point.name, cell.keeps, name) in found.confirmed
            told[at, place] = [
                *found.rows,
                one.test.rows,
                one.test.flips.right,
                one.test.flips.wrong,
                one.passes,
                confirmed,
            ]
    return told
