"""What the sites agree on before the first round: columns and their kinds, the outcome, how columns become numbers.

The same steps as in the simulation (`data/load.py`), with every question put to the sites over the network; a column
that one site lacks is refused by name before anything is trained.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wardround.core.contracts import Message, Query, Report, Task
from wardround.core.errors import Refusal
from wardround.core.federation import task_of
from wardround.data.cleanup import declare
from wardround.data.preparation import Preparation
from wardround.data.preparation_fit import fit_preparation
from wardround.data.schema import Schema, agree
from wardround.data.survival.follow_up import declare_follow_up
from wardround.data.table import Table
from wardround.deploy.coordinator.clinical.cohort import Cohort, flow_of
from wardround.deploy.coordinator.engine import Deployment
from wardround.deploy.protocol.requests import PrepareRows, SettleSchema
from wardround.queries.cards import cards, cards_of
from wardround.study.assemble import cleanup_of
from wardround.study.data_rules import refuse_dropped_rows, refuse_unknown_units
from wardround.study.file import Study
from wardround.study.release_noise import statistics_noise


@dataclass(frozen=True)
class SchemaAgreement:
    """Schema, preparation, task and the rows (train, validation, test) that every site tells it has."""

    schema: Schema
    preparation: Preparation
    task: Task
    positive: int
    rows: Mapping[str, tuple[int, int, int]]
    notes: tuple[str, ...]
    patients: Report = field(default_factory=dict)
    """Flow and table of the patients, as a result holds them; none under [privacy]."""


def table_without_rows(study: Study) -> Table:
    """What the study says about the sites' tables, without any rows."""
    said = study.data.settings
    if not isinstance(said.get("target"), str):
        raise Refusal("the study does not name the outcome column", where="[data]", remedy='add target = "..."')
    if study.data.partition is not None:
        raise Refusal(
            "real sites bring their own rows, so there is nothing to partition",
            where="[data.partition]",
            remedy="remove this table; it is for simulation only",
        )
    if study.evaluation.keep_predictions:
        raise Refusal(
            "predictions of single patients would have to leave the sites",
            where="[evaluation] keep_predictions",
            remedy="remove it; each site predicts its own patients with `wardround site predict`",
        )
    if study.evaluation.risk_bands and study.privacy is not None:
        raise Refusal(
            "under [privacy] no count of patients leaves a site without noise, and these have none",
            where="[evaluation] risk_bands",
            remedy="remove it; each site has these figures in its own report, `wardround site report`",
        )
    groups = tuple(said.get("groups", ()))
    drop = tuple(said.get("drop", ()))
    patient = (study.data.split_by,) if study.data.split_by else ()
    refuse_dropped_rows(study)
    table = Table(
        sites={},
        target=said["target"],
        origin="the sites' own tables",
        task=said.get("task"),
        positive=said.get("positive"),
        groups=groups,
        aside=tuple(dict.fromkeys((*(column for column in groups if column in drop), *patient))),
    )
    declared = declare(table, cleanup_of(study.data.cleaning))
    return declared if study.data.survival is None else declare_follow_up(declared, study.data.survival)


def agree_on_schema(study: Study, engine: Deployment) -> SchemaAgreement:
    """Ask the sites until they agree; refuses, naming column and site, when they cannot."""
    table, data = table_without_rows(study), study.data
    told_of = {"private": True} if study.privacy is not None else {}
    cell = data.preparation.smallest_cell
    query = cards(target=table.target, task=table.task, smallest_cell=cell, **told_of)
    told = cards_of(engine.query(query, Message({}), on="raw"))
    schema = agree(
        told,
        table,
        missing_columns=data.missing_columns,
        missing_target=data.missing_target,
        empty_sites=data.empty_sites,
    )
    refuse_unknown_units(study, (*schema.kinds, table.target, *table.aside))
    shown = {"kinds": schema.kinds, "task": schema.task, "classes": list(schema.classes)}
    engine.ask_members(SettleSchema(shown, study.study.seed))

    cohort = Cohort()

    def ask(query: Query, message: Message) -> Report:
        report = engine.query(query, message, on="training")
        cohort.hear(query, message, report)
        return report

    preparation, remarks = fit_preparation(
        ask,
        schema.kinds,
        private=statistics_noise(study),
        **data.preparation.model_dump(),
    )
    classes = schema.classes
    label = table.positive if table.positive is not None else (classes[-1] if classes else "")
    positive = classes.index(label) if label in classes else max(0, len(classes) - 1)
    task = task_of(schema.task, preparation.shape, classes, table.target, schema.horizons)
    rows = prepare_rows(engine, preparation, positive)
    patients: Report = {}
    if study.privacy is None:
        table_told = cohort.table(rows, max(engine.limits.cells.values(), default=1))
        patients = {"flow": flow_of(told, rows).plain(), "patient_table": table_told.plain()}
    return SchemaAgreement(schema, preparation, task, positive, rows, (*schema.notes, *remarks), patients)


def prepare_rows(engine: Deployment, preparation: Preparation, positive: int) -> dict[str, tuple[int, int, int]]:
    """Let every site prepare its rows; each is told its own number."""
    question = PrepareRows(preparation.to_json(), positive, list(engine.sites))
    replies = engine.ask_members(question)
    return {site: engine.limits.learn(replies[site]) for site in engine.sites if site in replies}  # whoever was first


def agreement_to_json(agreement: SchemaAgreement) -> dict[str, Any]:
    """The agreement as JSON, for the coordinator's disk."""
    return {
        "schema": {
            "kinds": agreement.schema.kinds,
            "task": agreement.schema.task,
            "classes": list(agreement.task.classes),
        },
        "preparation": agreement.preparation.to_json(),
        "positive": agreement.positive,
        "target": agreement.task.target,
        **({"horizons": list(agreement.task.horizons)} if agreement.task.survival else {}),
        "rows": {site: list(counts) for site, counts in agreement.rows.items()},
        "notes": list(agreement.notes),
        "patients": agreement.patients,
    }


def agreement_from_json(words: Mapping[str, Any]) -> SchemaAgreement:
    said = words["schema"]
    preparation = Preparation.from_json(words["preparation"])
    classes, horizons = tuple(said["classes"]), tuple(words.get("horizons", ()))
    return SchemaAgreement(
        Schema(dict(said["kinds"]), said["task"], classes, (), horizons),
        preparation,
        task_of(said["task"], preparation.shape, classes, words["target"], horizons),
        int(words["positive"]),
        {site: (int(a), int(b), int(c)) for site, (a, b, c) in words["rows"].items()},
        tuple(words["notes"]),
        words.get("patients", {}),
    )
