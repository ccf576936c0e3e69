"""Finds partners for the asking site, over the engine that will then train with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from wardround.core.contracts import Algorithm, Engine, Params, RoundRecord, Task
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.engine.participation import Participation
from wardround.partners.choice import Choice, Evidence, Question, refuse_rule, select_partners
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import Study
from wardround.study.methods import Method, site_number


class WithSites(Protocol):
    """Whatever knows the sites' names in the order of their numbers."""

    @property
    def sites(self) -> Sequence[str]: ...


class KnownSites(NamedTuple):
    """What is known before anybody is asked: the sites, how many training rows each tells it has, what is predicted."""

    sites: Sequence[str]
    rows: np.ndarray[Any, Any]
    task: Task


@dataclass(frozen=True)
class PartnerSelection:
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
    """The question as the study puts it to the sites of a simulation."""
    return question_about(study, known_sites(setting), engine, algorithm, params, participation)


def known_sites(setting: Setting) -> KnownSites:
    federation = setting.federation
    return KnownSites(federation.sites, federation.part("train")[1], federation.task)


def refuse_partner_choice(study: Study, setting: Setting, method: Method, participation: Participation) -> None:
    """Refuse a choice of partners that cannot be made, before anybody is asked."""
    _, candidates = candidates_of(study, known_sites(setting), participation)
    refuse_rule(method.rule, setting.federation.sites, candidates)


def question_about(
    study: Study,
    known: KnownSites,
    engine: Engine,
    algorithm: Algorithm,
    params: Params,
    participation: Participation,
) -> Question:
    """The question as the study puts it."""
    user, candidates = candidates_of(study, known, participation)
    model = assemble.model_of(study, known.task)
    return Question(engine, model, algorithm, params, study.study.rounds, user, candidates, study.study.seed)


def candidates_of(study: Study, known: KnownSites, participation: Participation) -> tuple[int, tuple[int, ...]]:
    """The asking site and its possible partners: who has patients, is there in the first round and did not withdraw."""
    user = user_of(study, known)
    present = participation.cohort(1)
    if user not in present:
        raise Refusal(
            f"the asking site '{known.sites[user]}' is not there in the first round, when partners are chosen",
            where="[participation]",
            remedy="let it be present from round 1 on",
        )
    withdrawn = withdrawn_sites(study, known)
    return user, tuple(int(site) for site in present if site != user and site not in withdrawn and known.rows[site] > 0)


def choose(question: Question, method: Method) -> PartnerSelection:
    """Judge the candidates as the method says, and take whom its rule takes."""
    component = registry.find("choice", method.choice, where="[partners]")
    choice: Choice = component.build(where="[partners]", **dict(method.choice_settings))
    names = question.engine.sites
    if not question.candidates:
        nothing = np.full(len(names), np.nan)
        evidence = Evidence(nothing, nothing, 0.0)
    else:
        evidence = choice.assess(question)
    partners = select_partners(evidence, method.rule, names, question.candidates)
    return PartnerSelection(question.user, partners, evidence, cost(question, evidence, partners))


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


def withdrawn_sites(study: Study, known: WithSites) -> set[int]:
    """The numbers of the sites that do not want to be partners in this study."""
    said = study.partners.withdrawn if study.partners else []
    names = list(known.sites) if said else []
    for name in said:
        if name not in names:
            raise Refusal(
                f"'{name}' is said to have withdrawn, and is not among the sites",
                where="[partners] withdrawn",
                remedy=registry.suggest_name(name, tuple(names[:100])),
            )
    return {names.index(name) for name in said}


def user_of(study: Study, known: WithSites) -> int:
    """The number of the asking site."""
    if study.study.user is None:
        some = f'"{known.sites[0]}"' if len(known.sites) else "..."
        raise Refusal(
            "partners are chosen for one site, and the study does not say which",
            where="[study]",
            remedy=f"add user = {some}, or the name of another site",
        )
    return site_number(study.study.user, known.sites)


def refuse_user(study: Study, setting: Setting) -> None:
    """An asking site that cannot learn or cannot be judged is refused, in words that say what it lacks."""
    federation = setting.federation
    user = user_of(study, federation)
    for part, what, remedy in (
        ("train", "training", "it needs patients of its own to learn from: add rows, or change [data] shares"),
        (
            "test",
            "test",
            "without held-out patients it cannot be measured what helps it: change [data] shares or add rows",
        ),
    ):
        first, count = (int(column[user]) for column in federation.part(part))
        where = f"[study] user = {study.study.user!r}"
        if not count:
            raise Refusal(f"the asking site has no {what} patients", where=where, remedy=remedy)
        labels = federation.y[first : first + count]
        if is_one_class(labels, federation.task):
            found = federation.task.classes[int(labels[0])]
            raise Refusal(
                f"all {count} {what} patients of the asking site have the same outcome ({found})",
                where=where,
                remedy="no model for it can be learned and judged from these: add patients of the other outcome",
            )


def is_one_class(labels: np.ndarray[Any, Any], task: Task) -> bool:
    return bool(task.classes) and len(np.unique(labels)) < 2
