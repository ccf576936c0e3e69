"""Studies offered to a site or second server, and what was decided: approved, denied, withdrawn. Nothing starts alone.

An offer is stored as it came and waits. A decision names the study's hash, so it holds for exactly these words; who
submits a study does not approve it; a withdrawal is final. Every decision is in the audit log before it counts.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.core.journals.journal import canonical_json
from wardround.core.text import has_hidden, plain_line
from wardround.deploy.home import PartyHome
from wardround.deploy.person_keys import PersonKey, is_signed
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import DIGITS, is_meant, study_id
from wardround.deploy.roles import login_name, read_roles
from wardround.deploy.trust.audit_log import event_entry
from wardround.runs.folder import digest
from wardround.runs.json_files import read_json, write_json
from wardround.study.file import Study, parse_study

State = Literal["approved", "denied", "withdrawn"]
STUDY_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,150}}-[0-9a-f]{{{DIGITS}}}")
LONGEST = 1 << 20
"""Bytes of a study; real ones have a few thousand."""
MOST_OFFERS = 1000
UNLOGGED = ("id", "state", "when", "columns", "releases")
"""Words of a decision that its entry in the audit log has anyway, or has the hash of."""
ANSWERS = {"denied": "denied it", "withdrawn": "withdrew from it"}


@dataclass(frozen=True)
class Offer:
    """A study put before the site: its words, who submits it, when it came, and the other sites' training rows."""

    id: str
    hash: str
    study: dict[str, Any]
    submitter: str
    came: str
    others: int | None = None
    """Training rows of the other sites together, where the coordinator knows them from studies before."""
    amends: str = ""
    """The study in whose place it is asked for."""


@dataclass(frozen=True)
class Decision:
    """What was decided about a study, by whom, when; an approval also says about which data, and until when."""

    id: str
    hash: str
    state: State
    by: str
    when: str
    why: str = ""
    data: str = ""
    until: str = ""
    epsilon: float = 0.0
    columns: dict[str, str] = field(default_factory=dict)
    """The columns that the study reads here, each with its kind."""
    releases: list[dict[str, Any]] = field(default_factory=list)
    """All that may leave, as it was shown (see `release.release_list`)."""
    releases_hash: str = ""
    login: str = ""
    """Who was logged in on the machine, whatever name was given."""
    signature: str = ""
    """By the key of `by`, where roles.toml names keys."""


def offer_path(home: PartyHome, study: str) -> Path:
    return home.path / "offers" / f"{check_id(study)}.json"


def decision_path(home: PartyHome, study: str) -> Path:
    return home.path / "decisions" / f"{check_id(study)}.json"


def check_id(study: str) -> str:
    """An identifier names files, so it must look like one."""
    if not STUDY_ID.fullmatch(study):
        raise Refusal(f"'{study[:80]}' is not a study", remedy="see `wardround site studies`")
    return study


# ---- offers ----


def store_offer(
    home: PartyHome,
    study: str,
    content: Mapping[str, Any],
    submitter: str,
    others: int | None = None,
    amends: str = "",
) -> Offer:
    """Put a study before the administrator; the same again changes nothing."""
    path = offer_path(home, study)
    if path.exists():
        return read_offer(home, study)
    if len(json.dumps(content)) > LONGEST or len(submitter) > 200:
        raise Refusal("the offered study is too long", where=study, remedy="shorten it")
    if has_hidden(content):
        raise Refusal(
            "the offered study holds control characters or invisible marks, so it could not be shown as it is",
            where=study,
            remedy="remove them from the study file",
        )
    submitter = plain_line(submitter)  # so that nobody is two people by a mark that is not seen
    parsed = parse_study(dict(content), where=f"the offered study {study}")
    words = parsed.model_dump(mode="json")
    if study_id(parsed) != study:
        raise Refusal(
            f"the offered study is {study_id(parsed)}, but calls itself {study}",
            remedy="install the same version of wardround on both sides",
        )
    if path.parent.is_dir() and sum(1 for _ in path.parent.iterdir()) >= MOST_OFFERS:
        raise Refusal(
            f"{MOST_OFFERS} studies have already been offered to this site",
            where=home.own_name,
            remedy="ask its administrator to clear the folder offers",
        )
    told = others if isinstance(others, int) and others > 0 else None
    replaces = check_id(amends) if amends else ""
    offer = Offer(study, digest(words), words, submitter, clock.timestamp(), told, replaces)
    more = {"amends": replaces} if replaces else {}
    home.log().append(event_entry("offered", study=study, hash=offer.hash, submitter=submitter, **more))
    write_json(path, asdict(offer))
    return offer


def read_offer(home: PartyHome, study: str) -> Offer:
    """The offer, if its words are still those of its hash."""
    content = read_json(offer_path(home, study), f"see `wardround {home.role} studies`")
    try:
        offer = Offer(**content)
        whole = offer.id == study and digest(offer.study) == offer.hash and study.endswith(f"-{offer.hash[:DIGITS]}")
    except (TypeError, AttributeError):
        whole = False
    if not whole:
        raise Refusal(
            "the stored offer was changed",
            where=str(offer_path(home, study)),
            remedy="delete it; the coordinator will offer it again",
        )
    return offer


def offers(home: PartyHome) -> list[Offer]:
    """All offers, oldest first."""
    found = [read_offer(home, path.stem) for path in (home.path / "offers").glob("*.json")]
    return sorted(found, key=lambda offer: (offer.came, offer.id))


def resolve(home: PartyHome, word: str, *, undecided: bool = False) -> Offer:
    """The offer that a person means: its whole identifier, or its name or a beginning where there is one of it.

    Of several of this name, with `undecided`, it is the only one that still waits for a decision.
    """
    known = {path.stem for path in (home.path / "offers").glob("*.json")}
    meant = [word] if word in known else sorted(one for one in known if is_meant(word, one))
    if undecided and all(one.rpartition("-")[0] == word for one in meant):
        waiting = [one for one in meant if not decision_path(home, one).exists()]
        meant = waiting if len(waiting) == 1 else meant
    if len(meant) != 1:
        what = f"{len(meant)} studies are called '{word}'" if meant else f"no study called '{word}' was offered"
        remedy = f"name one of {', '.join(meant)}" if meant else f"see `wardround {home.role} studies`"
        raise Refusal(what, where=home.own_name, remedy=remedy)
    return read_offer(home, meant[0])


def study_of(offer: Offer) -> Study:
    return parse_study(offer.study, where=offer.id)


# ---- decisions ----


def read_decision(home: PartyHome, study: str) -> Decision | None:
    path = decision_path(home, study)
    if not path.exists():
        return None
    try:
        return Decision(**read_json(path, ""))
    except TypeError:
        raise Refusal("the decision is damaged", where=str(path), remedy="restore it from a backup") from None


def decisions(home: PartyHome) -> dict[str, Decision]:
    found = {path.stem: read_decision(home, path.stem) for path in (home.path / "decisions").glob("*.json")}
    return {study: decision for study, decision in found.items() if decision is not None}


def refuse_own(offer: Offer, by: str, place: str) -> None:
    """Refuse that somebody approves their own study."""
    if not offer.submitter.strip():
        raise Refusal(
            "the offer does not say who submitted this study, so someone might approve their own",
            where=offer.id,
            remedy="ask the coordinator to submit it again with --by NAME",
        )
    if is_same_person(by, offer.submitter):
        raise Refusal(
            f"{by} submitted this study and cannot approve it",
            where=offer.id,
            remedy=f"have someone else {place} approve it, with --by NAME",
        )


def deny(home: PartyHome, study: str, *, by: str, why: str = "", key: PersonKey | None = None) -> Decision:
    offer, before = read_offer(home, study), read_decision(home, study)
    refuse_after(before, study, ("approved", "withdrawn"))
    return record_decision(home, Decision(study, offer.hash, "denied", check_person(by), clock.timestamp(), why), key)


def withdraw(home: PartyHome, study: str, *, by: str, why: str = "", key: PersonKey | None = None) -> Decision:
    """Take an approval back, for good; what was spent stays spent."""
    before = read_decision(home, study)
    if before is None or before.state != "approved":
        state = before.state if before else "not decided yet"
        raise Refusal(
            f"only an approved study can be withdrawn, and this one is {state}", where=study, remedy="deny it"
        )
    words = {**asdict(before), "state": "withdrawn", "by": check_person(by), "when": clock.timestamp(), "why": why}
    return record_decision(home, Decision(**words), key)


def refuse_after(before: Decision | None, study: str, states: tuple[str, ...]) -> None:
    if before is not None and before.state in states:
        remedy = (
            "withdraw it with `wardround site withdraw`"
            if before.state == "approved"
            else "a withdrawal is final: ask for a changed study"
        )
        raise Refusal(f"this study is {before.state} (by {before.by}, {before.when})", where=study, remedy=remedy)


def record_decision(home: PartyHome, decision: Decision, key: PersonKey | None = None) -> Decision:
    """In the audit log first, then on file; with who was logged in, and signed where the home names keys."""
    signature = "" if key is None else key.sign(signed_words(home, decision))
    decision = replace(decision, login=current_login(), signature=signature)
    problem = signature_problem(home, decision)
    if problem:
        raise Refusal(problem, where=decision.id, remedy="sign with --key FILE, a key that roles.toml names")
    words = {key: value for key, value in asdict(decision).items() if key not in UNLOGGED and value}
    home.log().append(event_entry(decision.state, study=decision.id, **words))
    write_json(decision_path(home, decision.id), asdict(decision))
    return decision


def signed_words(home: PartyHome, decision: Decision) -> bytes:
    """All of a decision, and at which party: a signature holds nowhere else."""
    words = {key: value for key, value in asdict(decision).items() if key not in ("login", "signature")}
    return canonical_json({**words, "party": home.own_name})


def signature_problem(home: PartyHome, decision: Decision) -> str:
    """Why a decision does not count where the home names keys of persons; empty where it does, or names none."""
    roles = read_roles(home.path)
    if roles is None or not roles.keys:
        return ""
    public = roles.keys.get(decision.by)
    if public is None:
        return f"roles.toml names no key of {decision.by}"
    signed = is_signed(public, decision.signature, signed_words(home, decision))
    return "" if signed else f"the decision is not signed with the key of {decision.by}"


def current_login() -> str:
    """The operating system's name of whoever runs this process: no variable or option changes it."""
    return login_name() or str(os.geteuid())


def check_person(by: str) -> str:
    name = " ".join(by.split())
    if not name or len(name) > 200 or not name.isprintable():
        raise Refusal("the name of the person who decides is missing or not printable", remedy="add --by NAME")
    return name


def is_same_person(one: str, other: str) -> bool:
    """Whether two names are the same but for case and spaces."""
    folded = ["".join(name.casefold().split()) for name in (one, other)]
    return bool(folded[0]) and folded[0] == folded[1]


def decision_status(home: PartyHome, study: str, *, today: date | None = None) -> tuple[Status, str]:
    """Whether a decision allows this study now, and if not why."""
    name = home.own_name
    if not offer_path(home, study).exists():
        return Status.WAITING, f"{name} does not know this study yet"
    decision = read_decision(home, study)
    if decision is None:
        return Status.WAITING, f"{name} has not decided yet"
    if decision.state != "approved":
        why = f": {decision.why}" if decision.why else ""
        return Status(decision.state), f"{name} {ANSWERS[decision.state]} on {decision.when[:10]}{why}"
    other = decision.id != study or read_offer(home, study).hash != decision.hash
    unsigned = "" if other else signature_problem(home, decision)
    if other or unsigned:
        words = (
            f"approved it, which does not count: {unsigned}"
            if unsigned
            else "approved a different version of this study"
        )
        return Status.DENIED, f"{name} {words}"
    if decision.until and (today or clock.today()) > date.fromisoformat(decision.until):
        return Status.DENIED, f"the approval of {name} expired on {decision.until}"
    return Status.OK, ""
