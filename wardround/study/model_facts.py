"""What a model file must say so that the model can be used: from a study and what its sites agreed on."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wardround import __version__
from wardround.core.components.packages import OWN
from wardround.core.components.recipes import Recipe, names_in, recipe_of, to_json
from wardround.core.contracts import Algorithm, Task
from wardround.core.errors import Refusal
from wardround.data.preparation import Preparation
from wardround.engine.registry import is_lent, package_of
from wardround.runs.model_file import ModelFacts
from wardround.runs.sites import PredictionTask
from wardround.study.file import DataSection, Study
from wardround.study.methods import Method

UNREAD = {
    *("path", "url", "query", "timeout", "site", "target", "drop", "positive", "groups", "task", "missing_site"),
    *("embeddings", "record"),
}
"""Settings of a source that tell where rows lie and what is asked of them, not how they are read."""


def model_facts(
    study: Study,
    method: Method,
    algorithm: Algorithm,
    task: Task,
    *,
    positive: int,
    preparation: Preparation | None,
    rounds: int,
    sites: Sequence[str] = (),
    threshold: float = 0.5,
    recipe: Recipe | None = None,
) -> ModelFacts:
    """All that a prediction needs; `sites` where each has a model of its own, `recipe` where it came with a request."""
    recipe = recipe or recipe_or_none(algorithm)
    features = preparation.features if preparation else ()
    return ModelFacts(
        wardround=__version__,
        study=study.study.name,
        method=method.name,
        label=method.label,
        rounds=rounds,
        task=prediction_task(task, features, positive),
        shape=task.shape,
        recipe=None if recipe is None else to_json(recipe),
        preparation=None if preparation is None else json.loads(preparation.to_json()),
        reading={**how_read(study.data.settings), **how_cleaned(study.data)},
        site_column=study.data.settings.get("site") or "",
        threshold=threshold,
        units={**{name: f"days since {since}" for name, since in study.data.cleaning.days.items()}, **study.data.units},
        sites=tuple(sites),
        packages={} if recipe is None else packages_of(recipe),
    )


def prediction_task(task: Task, features: Sequence[str], positive: int) -> PredictionTask:
    """What is predicted; of two classes also which one is looked for."""
    further: dict[str, Any] = {"positive": task.classes[positive]} if task.binary else {}
    if task.survival:
        further["horizons"] = task.horizons
    if len(task.shape) == 3:
        further["images"] = True
    return PredictionTask(
        kind=task.kind,
        target=task.target,
        classes=tuple(task.classes),
        features=tuple(features),
        **further,
    )


def how_read(settings: Mapping[str, Any]) -> dict[str, Any]:
    """How a table is read: all settings of its source but where it lies."""
    return {key: value for key, value in settings.items() if key not in UNREAD}


def how_cleaned(data: DataSection) -> dict[str, Any]:
    """What the values of columns mean; which rows a study leaves out is no matter of new patients."""
    said = data.cleaning.model_dump(exclude_defaults=True, exclude={"drop_rows", "duplicates"})
    return {"cleaning": said} if said else {}


def recipe_or_none(algorithm: Algorithm) -> Recipe | None:
    """How installed components make it; none for what was made in Python."""
    try:
        recipe = recipe_of(algorithm)
    except Refusal:
        return None
    return None if any(is_lent(kind, name) for kind, name in names_in(recipe)) else recipe


def packages_of(recipe: Recipe) -> dict[str, str]:
    """Packages of others that the recipe needs."""
    found = [package_of(kind, name) for kind, name in names_in(recipe) if kind not in ("task", "private")]
    return {one.name: one.version for one in found if one is not None and one != OWN}
