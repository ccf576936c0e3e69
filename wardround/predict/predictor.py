"""A trained model, ready for new patients: raw columns in, probabilities out, by the numbers of its training.

Rows are prepared and predicted by the same functions that a run's own evaluation uses, so a patient gets the same bits.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import pandas as pd

from wardround.core.components.recipes import Recipe, from_json
from wardround.core.contracts import Algorithm, Params
from wardround.core.errors import Refusal
from wardround.data.preparation import Preparation
from wardround.engine.analyse import as_algorithm
from wardround.engine.predictions import predict_rows
from wardround.engine.registry import ROOMS, make_from, suggest_name
from wardround.runs.file_names import adaptation_file
from wardround.runs.model_file import ModelFacts, read_facts, read_model
from wardround.runs.models import find_model

if TYPE_CHECKING:
    from wardround.predict.adaptation import Adaptation

Rows = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Predictor:
    """One model: the common one, or that of `site`."""

    facts: ModelFacts
    params: Params
    algorithm: Algorithm
    site: str | None = None
    adaptation: "Adaptation | None" = None
    """How its predictions are mapped, and patients flagged, at the site."""

    @cached_property
    def preparation(self) -> Preparation:
        """How columns become numbers."""
        if self.facts.preparation is None:
            raise Refusal(
                "this model takes arrays, such as images, and no table",
                where=f"model of {self.facts.study}",
                remedy="predict from Python, with rows of the shape that it was trained on",
            )
        return Preparation.from_json(json.dumps(self.facts.preparation))

    @property
    def positive(self) -> int | None:
        """Of two classes, the place of the one that is looked for."""
        task = self.facts.task
        return task.classes.index(task.positive) if task.positive in task.classes else None

    @property
    def threshold(self) -> float:
        """Of two classes, the probability from which a patient is flagged."""
        adapted = None if self.adaptation is None else self.adaptation.threshold
        return self.facts.threshold if adapted is None else adapted

    def read_by(self, reading: Mapping[str, Any]) -> "Predictor":
        """The same model for tables that are read by these settings, where they differ from those of training."""
        return replace(self, facts=self.facts.model_copy(update={"reading": {**self.facts.reading, **reading}}))

    def predict(self, frame: pd.DataFrame, *, where: str = "") -> Rows:
        """Probabilities of shape (rows, classes), values of shape (rows,), or of masks (rows, height, width)."""
        predicted = self.predict_prepared(self.preparation.apply(frame, where=where))
        return predicted if self.adaptation is None else self.adaptation.apply(predicted, self.positive)

    def predict_prepared(self, x: Rows) -> Rows:
        """The same for rows that are prepared, before any adaptation."""
        if x.shape[1:] != self.facts.shape:
            raise Refusal(
                f"the rows have the shape {x.shape[1:]}, and the model was trained on {self.facts.shape}",
                where=f"model of {self.facts.study}",
                remedy="prepare them as the training rows were",
            )
        if not len(x):
            classes, kind = len(self.facts.task.classes), self.facts.task.kind
            shape = self.facts.shape[:2] if kind == "segmentation" else (classes,) if classes else ()
            return np.zeros((0, *shape), np.float32)
        return predict_rows(self.algorithm, self.params, x)


def refuse_survival(predictor: Predictor, what: str) -> None:
    """Refuse what is made for classes or a quantity; `what` begins the sentence."""
    if predictor.facts.task.kind == "survival":
        raise Refusal(
            f"{what} is not made for a model of survival",
            where=f"model of {predictor.facts.study}",
            remedy="use `wardround predict`, which gives the risk by each horizon, or export it to ONNX",
        )


def load_predictor(
    run: Path,
    method: str | None = None,
    site: str | None = None,
    *,
    adapted: bool = True,
    make: Callable[[ModelFacts], Algorithm | None] = lambda _: None,
) -> Predictor:
    """The model of a run folder, or of a file, adapted to the site if it was; `make` gives the `algorithm` below."""

    def is_adapted(model: Path) -> bool:
        return adapted and model.with_name(adaptation_file(model.name, site)).is_file()

    path = find_model(run, method, site, common=is_adapted)
    predictor = read_predictor(path, site, make(read_facts(path)))
    if not is_adapted(path):
        return predictor
    from wardround.predict.adaptation import read_adaptation  # which loads what a plain prediction does without

    return replace(predictor, adaptation=read_adaptation(path, predictor.facts, site))


def read_predictor(path: Path, site: str | None = None, algorithm: Algorithm | None = None) -> Predictor:
    """The model in a file; of personal models that of a site. An own `algorithm` is for what was made in Python."""
    facts, params = read_model(path)
    algorithm = algorithm or algorithm_of(facts, path)
    if not facts.sites:
        return Predictor(facts, params, algorithm)
    if site is None:
        raise Refusal(
            "every site has a model of its own here",
            where=str(path),
            remedy=f"say whose to use with --site: {', '.join(facts.sites[:20])}",
        )
    if site not in facts.sites:
        raise Refusal(f"there is no personal model of {site}", where=str(path), remedy=suggest_name(site, facts.sites))
    place = facts.sites.index(site)
    own = jax.tree.map(lambda array: array[place], params)
    return replace(Predictor(facts, own, algorithm), site=site)


def algorithm_of(facts: ModelFacts, path: Path) -> Algorithm:
    """Made again by installed components."""
    if facts.recipe is None:
        raise Refusal(
            "this model was made in Python, and no installed component can make it again",
            where=str(path),
            remedy="load it from Python and pass the model, or install it as a component",
        )
    try:
        return made_from(from_json(facts.recipe))
    except Refusal as refusal:
        needs = ", ".join(f"{name} {version}" for name, version in facts.packages.items())
        remedy = f"install {needs}" if needs else f"install wardround {facts.wardround}, which wrote it"
        raise Refusal(f"the model cannot be made again: {refusal.what}", where=str(path), remedy=remedy) from None


def made_from(recipe: Recipe) -> Algorithm:
    if recipe.kind == "analysis":
        return as_algorithm(make_from(recipe))
    if recipe.kind in ROOMS:
        made: Algorithm = make_from(recipe)
        return made
    # What a private study trains; imported here, since accountants take long to load.
    from wardround.study.assemble import private_from

    return private_from(recipe)
