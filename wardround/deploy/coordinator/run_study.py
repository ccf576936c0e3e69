"""Conducts one study over real sites, from the offer to the report. Begun again after a crash, it goes on by itself.

All that matters is in the study's folder before it is told to anybody: the agreement, a checkpoint of every round, the
records. So the process may die at any point; started anew it finds its place and asks the sites again, who give the
same answers.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from wardround.core.contracts import Algorithm, Message, RoundRecord, Task, Transform
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.deploy.coordinator import privacy_plan
from wardround.deploy.coordinator.engine import Ask, Deployment
from wardround.deploy.coordinator.gather import Patience
from wardround.deploy.coordinator.partner_choice import refuse_partners, those_who_trained, told_partners, with_partners
from wardround.deploy.coordinator.schema_agreement import Agreement, agreed, as_words, from_words
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.replies import Judged
from wardround.deploy.site.approvals import study_id
from wardround.engine import registry
from wardround.engine.checkpoint import read_header
from wardround.engine.fit import FitResult, Schedule, fit
from wardround.evaluate.combined_block import combined_blocks
from wardround.runs.folder import RunFolder, digest, now
from wardround.study import assemble
from wardround.study.file import Study
from wardround.study.methods import own_method
from wardround.workflows.run import meters_of, stopping_of

Told = Callable[[str, Mapping[str, Any]], None]
PAUSE = 0.5


def conduct(
    study: Study,
    folder: RunFolder,
    sites: Sequence[str],
    ask: Ask,
    *,
    present: Callable[[], frozenset[str]],
    submitter: str = "",
    told: Told = lambda word, facts: None,
    stopped: threading.Event | None = None,
    gone: Callable[[], Mapping[str, str]] = dict,
    certificates: Callable[[], Mapping[str, str]] = dict,
    announce: Callable[[str, Mapping[str, bytes]], None] = lambda topic, bodies: None,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Offer the study, wait for approval, agree, train, and let every site judge; gives the result.

    `sizes` are the sites' training rows in studies before, for the share that each is told of.
    """
    transforms = transforms_of(study)
    privacy_plan.refuse_early(study)
    refuse_partners(study, sorted(sites), sum_only=any(one.sum_only for one in transforms))
    quorum = privacy_plan.quorum_of(study, len(sites))
    if quorum > len(sites):
        raise Refusal(
            f"{quorum} sites must answer each round, and {len(sites)} take part",
            where="[deploy] quorum",
            remedy="ask for fewer",
        )
    engine = Deployment(
        study=study_id(study),
        sites=tuple(sorted(sites)),
        task=Task((0,)),
        ask_site=ask,
        seed=study.study.seed,
        patience=Patience(quorum, floor=study.deploy.deadline, fewest=privacy_plan.fewest_of(study, len(sites))),
        transforms=transforms,
        present=present,
        told=told,
        stopped=stopped or threading.Event(),
        revoked=gone,
        certificates=certificates,
        announce=announce,
        kept=folder.path / "sums",
    )
    resume = (folder.path / "manifest.json").exists()
    manifest = folder.begin(study.model_dump(mode="json"), engine.study, kind="deployed", resume=resume)
    began = (folder.path / "agreement.json").exists()
    approved = offered(engine, study, submitter, wait=not began, sizes=sizes or {})
    point("coordinator.offer.approved")
    agreement, noisy = settled(engine, study, folder.path, approved)
    engine.introductions = introductions(engine, study, submitter, agreement)
    algorithm, fitted = trained(engine, noisy, folder, agreement, told)
    return finished(engine, study, folder, agreement, algorithm, fitted, manifest)


def offered(
    engine: Deployment, study: Study, submitter: str, *, wait: bool = True, sizes: Mapping[str, int]
) -> set[str]:
    """Put the study before every site and wait until all have approved it; one that denies it ends the study.

    With a quorum, those who have not approved it some time after the others are not waited for: they may join later.
    """
    waiting = set(engine.sites)
    since = time.monotonic()
    while waiting:
        waiting -= engine.revoked().keys()
        here = sorted(waiting & engine.present())
        answers, reasons = engine._gather(
            here, "offer", lambda site: offer(study, submitter, beside(site, engine.sites, sizes)), Message({}), 0
        )
        waiting -= set(answers)
        if not wait:
            break
        for site, why in reasons.items():
            if why.startswith(("denied", "withdrawn", "refused")):
                raise Refusal(
                    f"the study is {why}", where=f"site {site}", remedy="change the study, or leave the site out"
                )
        approved = len(engine.sites) - len(waiting) - len(engine.revoked().keys() & set(engine.sites))
        if approved < engine.patience.quorum:
            since = time.monotonic()
        elif time.monotonic() - since > study.deploy.deadline:
            break
        if waiting:
            engine.told("approval", {"waiting": sorted(waiting), "why": reasons})
            if engine.stopped.wait(PAUSE):
                raise KeyboardInterrupt
    return set(engine.sites) - waiting - engine.revoked().keys()


def offer(study: Study, submitter: str, others: int | None = None) -> dict[str, Any]:
    return {"content": study.model_dump(mode="json"), "submitter": submitter, "others": others}


def beside(site: str, sites: Sequence[str], sizes: Mapping[str, int]) -> int | None:
    """Training rows of the other sites together, which tells none of them unless there are two; none if not known."""
    others = [one for one in sites if one != site]
    return sum(sizes[one] for one in others) if all(one in sizes for one in others) else None


def settled(engine: Deployment, study: Study, folder: Path, approved: set[str]) -> tuple[Agreement, Study]:
    """The agreement of those who approved at first, and the study with its noise: made once, then read from disk."""
    path = folder / "agreement.json"
    if path.exists():
        words = json.loads(path.read_bytes())
        agreement, study = from_words(words), privacy_plan.with_words(study, words.get("privacy"))
    else:
        engine.members = approved
        agreement = agreed(study, engine)
        study, _ = privacy_plan.settled(study, agreement.task, engine.sites, agreement.rows)
        assemble.build(study, own_method(study), agreement.task, engine.sites)  # what noise cannot cover is refused
        point("coordinator.agreement.before_save")
        write_whole(path, json.dumps({**as_words(agreement), "privacy": privacy_plan.as_words(study)}).encode())
        point("coordinator.agreement.saved")
    engine.members = set(agreement.rows)
    engine.task = agreement.task
    return agreement, study


def introductions(
    engine: Deployment, study: Study, submitter: str, agreement: Agreement
) -> list[tuple[str, Mapping[str, Any]]]:
    """What a site is told that joins after the others have agreed: the same as they, in the same order."""
    words = as_words(agreement)
    prepared = {"preparation": words["preparation"], "positive": words["positive"], "numbers": list(engine.sites)}
    return [
        ("offer", offer(study, submitter)),
        ("settle", {"schema": words["schema"], "seed": study.study.seed}),
        ("prepare", prepared),
    ]


def only_finished_rounds(folder: RunFolder, checkpoint: Path) -> RunFolder:
    """Take records of rounds away whose state was never saved: they will be done again, perhaps by other sites."""
    last = int(read_header(checkpoint)["round"]) if checkpoint.exists() else 0
    lines = folder.lines("rounds.jsonl")
    if any(one["round"] > last for one in lines):
        kept = [json.dumps(one, ensure_ascii=False) + "\n" for one in lines if one["round"] <= last]
        write_whole(folder.path / "rounds.jsonl", "".join(kept).encode())
    return RunFolder.create(folder.path, resume=True)


def trained(
    engine: Deployment, study: Study, folder: RunFolder, agreement: Agreement, told: Told
) -> tuple[Algorithm, FitResult]:
    method = own_method(study)
    algorithm = assemble.build(study, method, agreement.task, engine.sites)
    model = assemble.model_of(study, agreement.task)
    participation = assemble.participation_of(study, engine.sites, study.study.seed)
    checkpoint = folder.checkpoint(method.name, 0)
    folder = only_finished_rounds(folder, checkpoint)
    accounts = privacy_plan.Accounts(study, agreement.task, engine.sites, folder.lines("rounds.jsonl"))

    def record(one: RoundRecord) -> None:
        one = accounts.noted(one, {**agreement.rows, **engine.joined})
        folder.record(method.name, 0, one)
        with open(folder.path / "rounds.jsonl", "rb") as file:  # on the disk before the checkpoint that follows it
            os.fsync(file.fileno())
        point("coordinator.round.recorded")
        told("round done", {"round": one.round, "of": study.study.rounds, "sites": list(one.sites), **one.measures})

    params = model.init(jax.random.key(study.study.seed))
    participation, choice = with_partners(study, engine, folder.path, agreement, algorithm, params, participation)
    if choice is not None:
        record(choice)
    fitted = fit(
        algorithm,
        engine,
        params,
        participation,
        Schedule(study.study.rounds, study.evaluation.every),
        judge=judged if any(rows[1] for rows in agreement.rows.values()) else None,
        stopping=stopping_of(study),
        checkpoint=checkpoint,
        identity=digest([study.model_dump(mode="json"), list(engine.sites)]),
        resume=True,
        on_round=record,
    )
    point("coordinator.checkpoint.saved")
    return algorithm, fitted


def judged(told: Any) -> Mapping[str, Any]:
    """Validation loss over all patients of the sites that told it, and site by site."""
    sums: Judged = told
    rows = sum(sums.rows.values())
    sites = {site: sums.loss[site] / sums.rows[site] for site in sums.rows}
    weighted = sum(sums.loss.values()) / rows if rows else float("nan")
    return {
        "validation_loss": {"weighted": weighted, "sites": sites},
        "validation_accuracy": {"weighted": sum(sums.right.values()) / max(1, rows)},
    }


def finished(
    engine: Deployment,
    study: Study,
    folder: RunFolder,
    agreement: Agreement,
    algorithm: Algorithm,
    fitted: FitResult,
    manifest: Mapping[str, Any],
) -> dict[str, Any]:
    """Every site judges the model on its own test patients and keeps it; the figures become the result."""
    told = engine.about_model("figures", algorithm, fitted.progress, number=fitted.rounds)
    those_who_trained(engine, folder.path).about_model("finish", algorithm, fitted.progress, number=fitted.rounds)
    method, task = own_method(study), agreement.task
    blocks = {site: one.header["figures"] for site, one in sorted(told.items()) if one.header.get("figures")}
    default = "rmse" if task.regression else "roc_auc" if len(task.classes) == 2 else "accuracy"
    words: dict[str, Any] = {
        "kind": "regression" if task.regression else "classification",
        "target": task.target,
        "classes": list(task.classes),
        "features": list(agreement.preparation.features),
    }
    if len(task.classes) == 2:
        words["positive"] = task.classes[agreement.positive]
    result = {
        "study": study.study.name,
        "kind": "deployed",
        "metric": study.study.metric or default,
        "task": words,
        "sites": [
            {"name": site, "train": rows[0], "validation": rows[1], "test": rows[2], "prevalence": None}
            for site, rows in {**agreement.rows, **engine.joined}.items()
        ],
        "repeats": 1,
        "methods": [
            {
                "name": method.name,
                "label": method.label,
                "algorithm": method.algorithm,
                "settings": dict(method.settings),
                "rounds": fitted.rounds,
                **told_partners(study, folder.path),
                "best_round": fitted.best_round,
                "stopped_early": fitted.stopped_early,
                "seconds": sum(float(one["seconds"]) for one in folder.rounds(method.name, 0)),
                "compile_seconds": fitted.first_call_seconds,
                "meters": meters_of(folder, method, study),
                "scores": combined_blocks(blocks) if blocks else {},
            }
        ],
        "comparison": [],
        "notes": [
            *agreement.notes,
            *privacy_plan.spent_notes(folder.lines("rounds.jsonl")),
            *left_out(engine.sites, blocks),
        ],
    }
    point("coordinator.result.before_save")
    params = jax.device_get(algorithm.params(fitted.progress.server))
    folder.write_model(params, {"study": study.study.name, "method": method.name})
    folder.write("result.json", result)
    folder.write("manifest.json", {**manifest, "finished": now(), "sites": list(engine.sites)})
    point("coordinator.result.saved")
    return result


def left_out(sites: Sequence[str], blocks: Mapping[str, Any]) -> list[str]:
    missing = [site for site in sites if site not in blocks]
    if not missing:
        return []
    return [f"No figures from {', '.join(missing)}: too few test patients to tell, or not there at the end."]


def transforms_of(study: Study) -> tuple[Transform, ...]:
    return tuple(
        registry.find("transform", one.name, where="[[transforms]]").build(where="[[transforms]]", **one.settings)
        for one in study.transforms
    )
