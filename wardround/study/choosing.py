"""Finds partners for the asking site, over the engine that will then train with them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from wardround.core.contracts import Algorithm, Engine, Params, RoundRecord, Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.engine import registry
from wardround.engine.participation import Participation
from wardround.partners.question import Choice, Evidence, Question, selected
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import Study
from wardround.study.methods import Method, site_number


@dataclass(frozen=True)
class Chosen:
    """Whom the asking site takes as partners (best first), why, and what finding out cost."""

    user: int
    partners: tuple[int, ...]
    evidence: Evidence
    record: RoundRecord


def question_of(
    study: Study,
    setting: Setting,
    engine: Engine,
    algorithm: Algorithm,
    params: Params,
    participation: Participation,
) -> Question:
    """The question as the study puts it: whoever is there in the first round and did not withdraw may be a partner."""
    federation = setting.federation
    user = user_of(study, federation)
    present = participation.cohort(1)
    if user not in present:
        raise Refusal(
            f"the asking site '{federation.sites[user]}' is not there in the first round, when partners are chosen",
            where="[participation]",
            remedy="let it be present from round 1 on",
        )
    withdrawn = {site_number(name, federation.sites) for name in (study.partners.withdrawn if study.partners else [])}
    rows = federation.part("train")[1]
    candidates = tuple(int(site) for site in present if site != user and site not in withdrawn and rows[site] > 0)
    model = assemble.model_of(study, federation.task)
    return Question(engine, model, algorithm, params, study.study.rounds, user, candidates, study.study.seed)


def choose(question: Question, method: Method) -> Chosen:
    """Judge the candidates as the method says, and take whom its rule takes."""
    component = registry.find("choice", method.choice, where="[partners]")
    choice: Choice = component.build(where="[partners]", **dict(method.choice_settings))
    names = question.engine.sites
    if not question.candidates:
        nothing = np.full(len(names), np.nan)
        evidence = Evidence(nothing, nothing, 0.0)
    else:
        evidence = choice.assess(question)
    partners = selected(evidence, method.rule, names, question.candidates)
    return Chosen(question.user, partners, evidence, cost(question, evidence, partners))


def cost(question: Question, evidence: Evidence, partners: tuple[int, ...]) -> RoundRecord:
    """What the choice took, as a round 0 of the method: rounds of probes, and all that travelled for them."""
    names, done = question.engine.sites, question.records
    told: dict[str, Any] = {
        "score": {names[site]: float(evidence.score[site]) for site in question.candidates},
        "chosen": [names[site] for site in partners],
        "probes": len(done),
    }
    return RoundRecord(
        round=0,
        sites=tuple(names[site] for site in question.everyone),
        count=len(question.everyone),
        rows=sum(record.rows for record in done),
        seconds=sum(record.seconds for record in done),
        cpu_seconds=sum(record.cpu_seconds for record in done),
        bytes_down=sum(record.bytes_down for record in done),
        bytes_up=sum(record.bytes_up for record in done),
        measures={"told": told},
    )


def user_of(study: Study, federation: Federation) -> int:
    """The number of the asking site."""
    if study.study.user is None:
        some = f'"{federation.sites[0]}"' if len(federation.sites) else "..."
        raise Refusal(
            "partners are chosen for one site, and the study does not say which",
            where="[study]",
            remedy=f"add user = {some}, or the name of another site",
        )
    return site_number(study.study.user, federation.sites)


def refuse_user(study: Study, setting: Setting) -> None:
    """An asking site that cannot learn or cannot be judged is refused, in words that say what it lacks."""
    federation = setting.federation
    user = user_of(study, federation)
    for part, what, remedy in (
        ("train", "training", "it needs patients of its own to learn from: add rows, or change [data] shares"),
        ("test", "test", "without held-out patients nobody can tell what helps it: change [data] shares or add rows"),
    ):
        first, count = (int(column[user]) for column in federation.part(part))
        where = f"[study] user = {study.study.user!r}"
        if not count:
            raise Refusal(f"the asking site has no {what} patients", where=where, remedy=remedy)
        labels = federation.y[first : first + count]
        if one_class(labels, federation.task):
            found = federation.task.classes[int(labels[0])]
            raise Refusal(
                f"all {count} {what} patients of the asking site have the same outcome ({found})",
                where=where,
                remedy="no model for it can be learned and judged from these: add patients of the other outcome",
            )


def one_class(labels: np.ndarray[Any, Any], task: Task) -> bool:
    return not task.regression and len(np.unique(labels)) < 2
