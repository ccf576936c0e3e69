"""What a study's labeling functions mean for its model: the classes they vote for."""

from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.text import counted
from wardround.data.derived_columns import declared_functions, labels_voted_for, vote_columns
from wardround.data.survival.intervals import interval_names
from wardround.data.table import Table
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


def vote_notes(study: Study, table: Table) -> list[str]:
    """Which functions never fire, or always do; refused where a model learns from votes and these tell nothing."""
    rules = study.data.cleaning.rules
    names = list(vote_columns(rules))
    frames = [frame[names] for frame in table.sites.values() if len(frame) and set(names) <= set(frame.columns)]
    rows = sum(map(len, frames))
    if not rules or not rows:
        return []
    functions, counts = declared_functions(rules), sum(frame.to_numpy(float).sum(axis=0) for frame in frames)
    heard = {one.label for one, count in zip(functions, counts, strict=True) if count}
    silent = sorted({one.label for one in functions} - heard)
    if silent and len(heard) < 2 and model_said(study) is not study.model:
        raise Refusal(
            f"no labeling function for {' or '.join(map(repr, silent))} fires on any of {counted(rows, 'row')}, so"
            " nothing tells the classes apart",
            where="[[data.cleaning.rules]]",
            remedy="look at the rules with the analysis rule_votes, and correct them or add others",
        )
    told = {0: "fires on none of the rows, so it teaches nothing", rows: "fires on all rows, so it tells nothing apart"}
    return [
        f"Rule {number} ({one.sentence}) {told[int(count)]}."
        for number, (one, count) in enumerate(zip(functions, counts, strict=True), 1)
        if int(count) in told
    ]


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
