"""Coordinator and site countersign each other's audit logs, so that neither can quietly take its own log back.

The coordinator shows the signed head of its log; the site checks it against the last one it saw, countersigns and keeps
it, and shows its own. The coordinator does the same and sends its countersignature, which the site writes into its log.
Nothing of a log but its length and last hash is told. A log that went back is not countersigned, and both are told;
the coordinator shows what it countersigned last, so that a site that was restored from a backup notices it.
With it goes the membership log, of which sites get every entry, and the other sites' signed statements of how far they
have seen it (see `membership_witness`).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.clock import timestamp
from wardround.core.errors import Refusal
from wardround.core.journals.journal_head import Head
from wardround.deploy.home import CoordinatorHome, Home, PartyHome
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.certificates import check_issued, read_certificate
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.log_heads import (
    Countersigned,
    countersignature_problem,
    parse_countersigned,
    parse_head_json,
    read_witness,
    witness,
)
from wardround.deploy.trust.membership import STATEMENT_SEAL, MembershipLog, head_problem
from wardround.deploy.trust.membership_witness import witness_membership
from wardround.deploy.trust.pins import read_partners
from wardround.deploy.trust.restoration import compare_with_witness
from wardround.runs.json_files import write_file

HEADS, COUNTERSIGNED, MEMBERSHIP = "heads", "countersigned", "membership"
TOPICS = (HEADS, COUNTERSIGNED, MEMBERSHIP)
Ask = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""(topic, words) to the words of the site's answer."""


# ---- the site's half ----


def answer(home: PartyHome, topic: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """What the site says to each topic."""
    if topic == HEADS:
        return answer_head(home, words)
    if topic == MEMBERSHIP:
        return witness_membership(home, words, coordinator_key(home, str(words["certificate"])))
    keep_countersignature(home, words)
    return {}


def answer_head(home: PartyHome, words: Mapping[str, Any]) -> dict[str, Any]:
    """Countersign the coordinator's head, and show the own one, unless it is behind what was countersigned before."""
    key = coordinator_key(home, str(words["certificate"]))
    abandoned = compare_with_witness(home, words["seen"]) if "seen" in words else ""
    try:
        head = parse_head_json(words["head"])
    except ValueError as problem:
        raise Refusal(
            f"this is not the head of an audit log: {problem}",
            remedy="install the same version of wardround on both sides",
        ) from None
    name = home.settings.server_name
    seen = witness(home.witness_path, head, {name: [key]}, home.own_name, home.key)
    more = {"abandoned": abandoned} if abandoned else {}
    return {"head": asdict(home.log().head()), "countersigned": seen.content(), **more}


def keep_countersignature(home: PartyHome, words: Mapping[str, Any]) -> None:
    """Write the coordinator's countersignature into the own log, if it is one and of a head of this log."""
    seen = parse_countersignature(words["countersigned"])
    name = home.settings.server_name
    if seen.by != name or seen.head.who != home.own_name:
        raise Refusal(
            f"the countersignature is by {seen.by} for {seen.head.who}", remedy="ask the coordinator to fix it"
        )
    refuse_forged(seen, home)
    home.log().keep(seen)


def coordinator_key(home: PartyHome, certificate: str) -> ec.EllipticCurvePublicKey:
    """The key of the coordinator's certificate, which is kept so that the log can be verified later."""
    where = "the coordinator's certificate"
    try:
        read = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        raise Refusal("it cannot be read", where=where, remedy="ask the coordinator to fix it") from None
    issued, key = check_issued(read, read_certificate(home.authority_path), where=where), read.public_key()
    if (issued.name, issued.role) != (home.settings.server_name, "coordinator") or not isinstance(
        key, ec.EllipticCurvePublicKey
    ):
        raise Refusal(f"it belongs to the {issued.role} {issued.name}", where=where, remedy="find out who sent it")
    before = home.other_keys().get(issued.name, [])
    pinned = read_partners(home).get(issued.name)
    if before and key not in before and (pinned is None or pinned.fingerprint != fingerprint(key)):
        raise Refusal(
            f"the coordinator's key is not the one that this site knows; the new words are: {fingerprint(key)}",
            where=where,
            remedy=f"call the coordinator, and if the words are right run `wardround site trust {issued.name} WORDS`",
        )
    if not home.coordinator_path.exists() or home.coordinator_path.read_bytes() != certificate.encode():
        write_file(home.coordinator_path, certificate.encode())
    return key


# ---- the coordinator's half ----


def exchange(home: CoordinatorHome, site: str, ask: Ask) -> Countersigned:
    """Let a site countersign this log, and countersign the site's; gives what is kept of the site's."""
    certificate, path = home.certificate_path.read_text(), home.witness_path(site)
    before = {"seen": read_witness(path).content()} if path.exists() else {}
    told = ask(HEADS, {"head": asdict(home.log().head()), "certificate": certificate, **before})
    theirs = parse_countersignature(told["countersigned"])
    if theirs.by != site or theirs.head.who != home.own_name:
        raise Refusal(f"the countersignature is by {theirs.by} for {theirs.head.who}", where=f"site {site}")
    refuse_forged(theirs, home)
    home.log().keep(theirs)
    try:
        head = parse_head_json(told["head"])
    except ValueError as problem:
        raise Refusal(f"this is not the head of an audit log: {problem}", where=f"site {site}") from None
    if head.who != site:
        raise Refusal(f"it sent the head of {head.who}'s audit log", where=f"site {site}")
    if before and told.get("abandoned") == before["seen"]["head"]["hash"]:
        # Its administrator accepted a restore: this is written down for good, and a new beginning is countersigned.
        home.log().append(event_entry("restored", site=site, head=before["seen"]["head"]))
        path.replace(path.with_suffix(f".{timestamp().replace(':', '')}.json"))
    seen = witness(path, head, home.public_keys(), home.own_name, home.key)
    ask(COUNTERSIGNED, {"countersigned": seen.content()})
    return seen


def share_membership(home: CoordinatorHome, log: MembershipLog, site: str, ask: Ask) -> Head:
    """Show a site the membership log and what other sites said of it; gives the site's own signed statement."""
    kept = read_statement(home, site)
    start = kept.entries if kept is not None else 0
    chain = log.chain()
    for _ in range(2):
        told = ask(
            MEMBERSHIP,
            {
                "certificate": home.certificate_path.read_text(),
                "head": asdict(log.head(home.own_name, home.key)),
                "from": start,
                "lines": log.lines_after(start),
                "statements": statements_for(home, site),
            },
        )
        if "statement" in told:
            break
        start = min(int(told["from"]), len(chain.hashes) - 1)
    where = f"site {site}"
    try:
        seen = parse_head_json(told["statement"])
    except (KeyError, ValueError):
        raise Refusal("it did not say how far it has seen the membership log", where=where) from None
    wrong = head_problem(home.public_keys(), seen, STATEMENT_SEAL)
    if seen.who != site or wrong:
        raise Refusal(f"its statement about the membership log is not valid: {wrong or seen.who}", where=where)
    if not 0 <= seen.entries < len(chain.hashes) or chain.hashes[seen.entries] != seen.hash:
        raise Refusal("it has seen another membership log than this coordinator's", where=where)
    if seen != kept:
        write_file(home.statement_path(site), seen.to_bytes())
    return seen


def read_statement(home: CoordinatorHome, site: str) -> Head | None:
    path = home.statement_path(site)
    try:
        return parse_head_json(json.loads(path.read_bytes())) if path.exists() else None
    except ValueError:
        return None


def statements_for(home: CoordinatorHome, site: str) -> list[dict[str, Any]]:
    """The last statements of all other sites, and of second servers."""
    found = [read_statement(home, one) for one in (*home.site_names(), *home.second_names()) if one != site]
    return [asdict(one) for one in found if one is not None]


# ---- both ----


def parse_countersignature(content: Any) -> Countersigned:
    try:
        return parse_countersigned(content)
    except ValueError as problem:
        raise Refusal(
            f"this is not a countersignature: {problem}", remedy="install the same version of wardround on both sides"
        ) from None


def refuse_forged(seen: Countersigned, home: Home) -> None:
    """Refuse a countersignature that its signer did not make, or under a head that is not the own one."""
    wrong = countersignature_problem(home.public_keys(), seen)
    if wrong:
        raise Refusal(
            f"a countersignature is not valid: {wrong}", remedy="ask its sender to run `wardround audit verify`"
        )
