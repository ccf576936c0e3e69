"""What the file of an analysis's model must say so that the model can be used."""

import json

from wardround import __version__
from wardround.core.analysis import AgreedColumn, FoundModel
from wardround.core.components.recipes import Recipe, to_json
from wardround.core.contracts import Task
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.engine import registry
from wardround.runs.model_file import ModelFacts
from wardround.study.file import Study
from wardround.study.model_facts import how_cleaned, how_read, packages_of, prediction_task


def analysis_facts(study: Study, recipe: Recipe, found: FoundModel, *, rounds: int) -> ModelFacts:
    """All that a prediction needs; `rounds` are the exchanges that were needed."""
    preparation = Preparation(tuple(unprepared(name, column) for name, column in found.columns.items()))
    task = Task((len(preparation.features),), found.classes, found.target)
    return ModelFacts(
        wardround=__version__,
        study=study.study.name,
        method=recipe.name,
        label=registry.find("analysis", recipe.name).label,
        rounds=rounds,
        task=prediction_task(task, preparation.features, found.positive),
        shape=task.shape,
        recipe=to_json(recipe),
        preparation=json.loads(preparation.to_json()),
        reading={**how_read(study.data.settings), **how_cleaned(study.data)},
        units=dict(study.data.units),
        packages=packages_of(recipe),
    )


def unprepared(name: str, column: AgreedColumn) -> NumberColumn | TextColumn:
    """A column as it is: a number, or which of the levels it is, and whether it is missing."""
    if column.kind == "number":
        return NumberColumn(name, indicator=True)
    return TextColumn(name, column.levels, indicator=True)
