"""What a study's labeling functions mean for its model: the classes they vote for."""

from wardround.core.contracts import Task
from wardround.data.derived_columns import declared_functions, labels_voted_for
from wardround.data.survival.intervals import interval_names
from wardround.engine.registry import find
from wardround.study.data_rules import example_shape, is_segmentation
from wardround.study.file import Study
from wardround.study.sections.section import Named


def model_said(study: Study) -> Named:
    """[model]; of one that learns from votes also the class that each of the study's functions votes for."""
    rules, said = study.data.cleaning.rules, study.model
    if not rules or "votes" not in {one.name for one in find("model", said.name, where="[model]").parameters}:
        return said
    return Named(name=said.name, **{"votes": [one.label for one in declared_functions(rules)], **said.settings})


def sketch_task(study: Study) -> Task:
    """A task of few columns and classes, to see what a study's algorithm is before its sites have agreed on theirs."""
    rules = study.data.cleaning.rules
    shape = (1 + len(rules),) if rules else example_shape(study)
    if study.data.horizons is not None:
        horizons = tuple(study.data.horizons)
        return Task(shape, interval_names(horizons), horizons=horizons)
    if is_segmentation(study):
        return Task(shape, segmentation=True)
    return Task(shape, labels_voted_for(rules) or ("0", "1"))
