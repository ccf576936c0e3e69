"""Finds partners over real sites, once: whom the asking site takes is on disk before anybody trains with them.

The choices are those of the simulation and ask through the same seam. What they learn is written down round by round
and question by question, so a coordinator that dies meanwhile goes on where it was, and a choice that has been made is
read and not made again. Sites that are not taken are asked for no further round of training.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wardround.core.contracts import Algorithm, Message, Params, Progress, Query, Report, RoundRecord, Task
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.core.quality import Quality
from wardround.deploy.coordinator.engine import Deployment
from wardround.deploy.coordinator.events import PartnersSought
from wardround.deploy.coordinator.schema_agreement import SchemaAgreement
from wardround.engine.checkpoint import read_checkpoint, write_checkpoint
from wardround.engine.checks import refuse_few
from wardround.engine.participation import Participation, restrict
from wardround.partners.choice import Evidence, select_partners
from wardround.runs.json_files import as_json
from wardround.study.file import Study
from wardround.study.methods import Method, own_method
from wardround.study.partners import asks_of
from wardround.study.privacy import refuse_choice
from wardround.workflows.partners.choose import (
    KnownSites,
    PartnerSelection,
    choose,
    question_about,
    user_of,
    withdrawn_sites,
)

NAME = "partners.json"


def refuse_partners(study: Study, sites: Sequence[str], *, sum_only: bool) -> None:
    """Refuse, before anything is offered, a choice that cannot be made; `sites` in the order of their numbers."""
    if study.partners is None:
        return
    method = own_method(study)
    if study.privacy is not None:
        refuse_choice(method.choice)
    known = KnownSites(sites, np.zeros(len(sites)), Task((0,)))
    user, withdrawn = user_of(study, known), withdrawn_sites(study, known)
    others = [site for site in range(len(sites)) if site != user and site not in withdrawn]
    nothing = np.full(len(sites), np.nan)
    select_partners(Evidence(nothing, nothing, 0.0), method.rule, sites, others)
    if sum_only and asks_of(study).probes:
        raise Refusal(
            f"the choice of partners by '{method.choice}' needs each site's answer, and this study reveals only sums",
            where="[partners]",
            remedy="choose by distribution_distance, or remove the secure sum",
        )


def choose_partners(
    study: Study,
    engine: Deployment,
    folder: Path,
    agreement: SchemaAgreement,
    algorithm: Algorithm,
    params: Params,
    participation: Participation,
) -> tuple[Participation, RoundRecord | None]:
    """Who trains, once partners are chosen, and the choice as a round 0; all as it was where none are to be chosen."""
    method = own_method(study)
    if not method.choice:
        return participation, None
    chosen = read_choice(folder)
    if chosen is None:
        chosen = make_choice(study, method, engine, folder, agreement, algorithm, params, participation)
    refuse_few(engine.transform, 1 + len(chosen.partners), "[partners]")
    return restrict(participation, [chosen.user, *chosen.partners]), chosen.record


def make_choice(
    study: Study,
    method: Method,
    engine: Deployment,
    folder: Path,
    agreement: SchemaAgreement,
    algorithm: Algorithm,
    params: Params,
    participation: Participation,
) -> PartnerSelection:
    """Ask the sites, and write down whom the asking site takes."""
    rows = np.array([agreement.rows.get(site, (0, 0, 0))[0] for site in engine.sites])
    known = KnownSites(engine.sites, rows, agreement.task)
    if not rows[user_of(study, known)]:
        raise Refusal(
            "the asking site has not approved the study yet, or has too few training patients",
            where=f"[study] user = {study.study.user!r}",
            remedy="let it approve before training begins, or choose another [study] user",
        )
    engine.gatherer.observer(PartnersSought(method.choice, study.study.user))
    remembering = RecordingEngine(engine, folder / "choosing")
    try:
        question = question_about(study, known, remembering, algorithm, params, participation)
        chosen = choose(question, method)
    finally:
        engine.gatherer.course = None
    write_whole(folder / NAME, (as_json(choice_to_json(chosen, engine.sites)) + "\n").encode())
    shutil.rmtree(remembering.folder, ignore_errors=True)
    return chosen


@dataclass
class RecordingEngine:
    """The deployed engine while partners are chosen: every round and every question is done once, whoever dies.

    Each training is a course of its own, numbered in the order in which they are begun: sites keep nothing from one to
    the next, and the same request in another course is another request.
    """

    engine: Deployment
    folder: Path
    course: int = 0
    questions: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)

    @property
    def sites(self) -> Sequence[str]:
        return self.engine.sites

    def begin(self, algorithm: Algorithm, params: Params) -> Progress:
        self.course += 1
        self.engine.gatherer.course = self.course
        return self.engine.begin(algorithm, params)

    def train(
        self, algorithm: Algorithm, progress: Progress, rounds: Sequence[tuple[int, np.ndarray[Any, Any]]]
    ) -> tuple[Progress, list[RoundRecord]]:
        path = self.folder / f"course-{self.course}.safetensors"
        done: list[RoundRecord] = []
        if path.exists():
            progress, header = read_checkpoint(path, progress)
            done = [record_of(one) for one in header["records"]]
        for number, cohort in rounds[len(done) :]:
            progress, new = self.engine.train(algorithm, progress, [(number, cohort)])
            done += new
            write_checkpoint(path, progress, {"records": [asdict(one) for one in done]})
        return progress, done

    def ask(self, query: Query, message: Message) -> Report:
        self.questions += 1
        path = self.folder / f"question-{self.questions}.json"
        if not path.exists():
            write_whole(path, json.dumps(self._ask_remaining(query, message)).encode())
        report: Report = json.loads(path.read_bytes())
        return report

    def _ask_remaining(self, query: Query, message: Message) -> Report:
        """The answers of all who are still in the study; one that leaves meanwhile is no partner, and that is all."""
        engine = self.engine
        while True:
            gone = set(engine.gatherer.departed_sites())
            engine.members = set(engine.sites if engine.members is None else engine.members) - gone
            try:
                return engine.ask(query, message)
            except Refusal:
                if set(engine.gatherer.departed_sites()) == gone:
                    raise

    def judge(self, algorithm: Algorithm, progress: Progress, part: str) -> Quality:  # noqa: ARG002 - the contract's
        """No choice announces it, so the sites would not answer: a choice compares models by the probe `losses`."""
        raise Refusal(
            "the choice of partners asked for a model's quality without announcing it to the sites",
            where="[partners]",
            remedy="announce the probe losses in the choice, and use its answers",
        )


# ---- on the disk ----


def choice_to_json(chosen: PartnerSelection, sites: Sequence[str]) -> dict[str, Any]:
    """The choice as JSON: who, how they were judged, and what it cost. A score that is not known is null."""
    evidence = chosen.evidence
    return {
        "user": sites[chosen.user],
        "partners": [sites[site] for site in chosen.partners],
        "sites": list(sites),
        "score": np.asarray(evidence.score, np.float64).tolist(),
        "error": np.asarray(evidence.error, np.float64).tolist(),
        "cut": float(evidence.cut),
        "details": evidence.details,
        "record": asdict(chosen.record),
    }


def read_choice(folder: Path) -> PartnerSelection | None:
    """The choice that was made, if it was."""
    path = folder / NAME
    if not path.exists():
        return None
    words = json.loads(path.read_bytes())
    names: list[str] = words["sites"]
    score, error = (np.array([np.nan if one is None else one for one in words[key]]) for key in ("score", "error"))
    cut = float("nan") if words["cut"] is None else float(words["cut"])
    partners = tuple(names.index(name) for name in words["partners"])
    evidence = Evidence(score, error, cut, words["details"])
    return PartnerSelection(names.index(words["user"]), partners, evidence, record_of(words["record"]))


def record_of(words: dict[str, Any]) -> RoundRecord:
    return RoundRecord(**{**words, "sites": tuple(words["sites"])})


# ---- what the result tells ----


def partner_fields(study: Study, folder: Path) -> dict[str, Any]:
    """The asking site and its partners, as the result of a simulation tells them; none where none were chosen."""
    chosen = read_choice(folder)
    user = study.study.user if own_method(study).for_one_site else None
    names = None if chosen is None else json.loads((folder / NAME).read_bytes())["partners"]
    return {"user": user, "partners": names}


def choice_notes(folder: Path) -> list[str]:
    """Whose words about itself the asking site's measurements do not bear out."""
    chosen = read_choice(folder)
    told = {} if chosen is None else (chosen.evidence.details or {}).get("implausible", {})
    return [
        f"The loss that {site} tells of its own model is worth a look: {why}." for site, why in sorted(told.items())
    ]


def restrict_to_partners(engine: Deployment, folder: Path) -> Deployment:
    """The same engine for the asking site and its partners only: the finished model is theirs to keep."""
    chosen = read_choice(folder)
    if chosen is None:
        return engine
    return replace(engine, sites=tuple(engine.sites[site] for site in sorted({chosen.user, *chosen.partners})))
