"""Models of every kind over columns of every kind, with parameters drawn at random: an export knows no training."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from wardround import __version__
from wardround.core.components.recipes import to_json
from wardround.core.contracts import Task
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.engine import registry
from wardround.predict.adaptation import Adaptation
from wardround.predict.predictor import Predictor
from wardround.predict.recalibration import RiskMap
from wardround.runs.model_file import ModelFacts
from wardround.study.model_facts import prediction_task, recipe_of

COLUMNS = Preparation(
    (
        NumberColumn("age", fill=54.0, center=52.5, scale=17.25, seen=(18.0, 97.0)),
        NumberColumn("lactate", fill=1.9, center=2.4, scale=1.37, indicator=True, seen=(0.3, 21.0)),
        NumberColumn("heart rate", fill=88.0, center=88.6, scale=19.1, low=20.0, high=250.0),
        NumberColumn("never measured", scale=0.0),
        NumberColumn("admitted at", fill=1.7e9, center=1.7e9, scale=5.0e6, seen=(1.69e9, 1.71e9)),
        TextColumn("sex", ("F", "M"), fill="F"),
        TextColumn("ward", ("A1", "B2", "C3", "naïve <b>"), indicator=True),
        TextColumn("triage", ("1", "2", "3", "4", "5"), fill="3", indicator=True),
    )
)
CLASSES = {"two": ("no", "yes"), "three": ("home", "ward", "dead"), "value": ()}


def random_params(model, seed):
    """Of a size at which probabilities are neither all one half nor all 0 and 1."""
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    draw = np.random.default_rng(seed)
    return {
        name: draw.normal(0, 1 if name.endswith("bias") else 1.2 / np.sqrt(max(1, shape.shape[0])), shape.shape).astype(
            np.float32
        )
        for name, shape in shapes.items()
    }


def saved(model="logistic", outcome="two", algorithm="fed_avg", seed=1, columns=COLUMNS, shape=None, **settings):
    """A predictor as if read from a file: the common model, or with a personal algorithm that of the site Kenema."""
    facts, params, made = model_parts(model, outcome, algorithm, seed, columns, shape, settings)
    personal = made.personal is not None
    return Predictor(facts, params, made, "Kenema" if personal else None)


def model_parts(model, outcome, algorithm, seed, columns, shape, settings):
    task = Task(shape or (len(columns.features),), CLASSES[outcome], "outcome")
    network = registry.find("model", model).build(task, **settings)
    made = registry.find("algorithm", algorithm).build(network, registry.find("aggregator", "weighted_mean").build())
    params = random_params(network, seed)
    if algorithm == "model_interpolation":
        params = {"own": params, "common": random_params(network, seed + 1), "share": np.float32(0.3)}
    if algorithm == "context_features":
        params["context/shift"] = (
            np.random.default_rng(seed).normal(0, 0.5, int(np.prod(task.shape))).astype(np.float32)
        )
    facts = ModelFacts(
        wardround=__version__,
        study="trial",
        method=algorithm,
        label="Common model",
        rounds=3,
        task=prediction_task(task, columns.features if shape is None else (), 1),
        shape=task.shape,
        recipe=to_json(recipe_of(made)),
        preparation=json.loads(columns.to_json()) if shape is None else None,
        threshold=0.35,
        digest="0" * 64,
    )
    return facts, params, made


def adapted(predictor, **words):
    """The same model after `wardround adapt` at a site."""
    task = predictor.facts.task
    risk_map = RiskMap(**{"kind": "slope", "intercept": -0.4, "slope": 1.3, "log_odds": bool(task.classes), **words})
    found = Adaptation(
        model=predictor.facts.digest,
        site="Bo",
        outcome=task.target,
        patients=1200,
        with_outcome=300,
        risk_map=risk_map,
        losses={},
        threshold=0.3 if task.classes else None,
    )
    return replace(predictor, adaptation=found)


@pytest.fixture(scope="session")
def make_adapted():
    return adapted


@pytest.fixture(scope="session")
def make_saved():
    return saved
