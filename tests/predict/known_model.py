"""A run folder whose model is known: log-odds (or value) = 2 age - 1 + (1 where sex is f), age unscaled."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from wardround import __version__
from wardround.core.components.recipes import to_json
from wardround.core.contracts import Task
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.engine import registry
from wardround.runs.model_file import ModelFacts, write_model
from wardround.study.model_facts import prediction_task, recipe_or_none

PREPARATION = Preparation(
    (NumberColumn("age", 0.0, 0.5, 1.0, seen=(-3.0, 3.0)), TextColumn("sex", ("f", "m"), fill="m")),
)
CLASSES = ("no", "yes")


def write_known_model(folder: Path, *, classes: tuple[str, ...] = CLASSES, shift: float = 0.0) -> Path:
    """The folder with its model; without classes it predicts a value."""
    task = Task((3,), classes, "ill")
    model = registry.find("model", "logistic" if classes else "linear").build(task)
    aggregator = registry.find("aggregator", "weighted_mean").build()
    algorithm = registry.find("algorithm", "fed_avg").build(model, aggregator)
    weights, bias = np.array([[2.0], [1.0], [0.0]]), np.array([shift])
    if classes:
        # Of two classes only the difference counts.
        others = len(classes) - 1
        weights, bias = (np.concatenate([0 * one] * others + [one], axis=-1) for one in (weights, bias))
    params = {"dense_0/kernel": weights.astype(np.float32), "dense_0/bias": bias.astype(np.float32)}
    recipe = recipe_or_none(algorithm)
    assert recipe is not None
    facts = ModelFacts(
        wardround=__version__,
        study="known",
        method="fed_avg",
        label="Common model",
        rounds=1,
        task=prediction_task(task, PREPARATION.features, 1),
        shape=(3,),
        recipe=to_json(recipe),
        preparation=json.loads(PREPARATION.to_json()),
        site_column="ward",
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder / "model.safetensors", params, facts)
    return folder


def known_value(frame: pd.DataFrame) -> np.ndarray:
    """What the model says, by hand: the log-odds, or the value."""
    return 2 * (frame["age"].to_numpy() - 0.5) + (frame["sex"] == "f").to_numpy()


def known_patients(rows: int, *, seed: int = 0, shift: float = 0.0, stretch: float = 1.0) -> pd.DataFrame:
    """Patients whose real log-odds are stretch * (what the model says) + shift."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(size=rows).round(3), "sex": rng.choice(["f", "m"], rows)})
    real = 1 / (1 + np.exp(-(stretch * known_value(frame) + shift)))
    days = pd.Timestamp("2025-01-01") + pd.to_timedelta(np.arange(rows) // 4, unit="D")
    return frame.assign(ill=np.where(rng.random(rows) < real, "yes", "no"), date=days.strftime("%Y-%m-%d"))
