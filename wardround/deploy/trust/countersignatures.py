"""Coordinator and site countersign each other's audit logs, so that neither can quietly take its own log back.

The coordinator shows the signed head of its log; the site checks it against the last one it saw, countersigns and keeps
it, and shows its own. The coordinator does the same and sends its countersignature, which the site writes into its log.
Nothing of a log but its length and last hash is told. A log that went back is not countersigned, and both are told.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.errors import Refusal
from wardround.deploy.home import CoordinatorHome, Home, SiteHome
from wardround.deploy.trust.certificates import check_issued, read_certificate
from wardround.deploy.trust.log_heads import (
    Countersigned,
    countersignature_problem,
    parse_countersigned,
    parse_head_json,
    witness,
)
from wardround.runs.json_files import write_file

HEADS, COUNTERSIGNED = "heads", "countersigned"
TOPICS = (HEADS, COUNTERSIGNED)
Ask = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""(topic, words) to the words of the site's answer."""


# ---- the site's half ----


def answer(home: SiteHome, topic: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """What the site says to either topic."""
    if topic == HEADS:
        return answer_head(home, words)
    keep_countersignature(home, words)
    return {}


def answer_head(home: SiteHome, words: Mapping[str, Any]) -> dict[str, Any]:
    """Countersign the coordinator's head, and show the own one."""
    key = coordinator_key(home, str(words["certificate"]))
    try:
        head = parse_head_json(words["head"])
    except ValueError as problem:
        raise Refusal(
            f"this is not the head of an audit log: {problem}",
            remedy="install the same version of wardround on both sides",
        ) from None
    name = home.settings.server_name
    seen = witness(home.witness_path, head, {name: [key]}, home.own_name, home.key)
    return {"head": asdict(home.log().head()), "countersigned": seen.content()}


def keep_countersignature(home: SiteHome, words: Mapping[str, Any]) -> None:
    """Write the coordinator's countersignature into the own log, if it is one and of a head of this log."""
    seen = parse_countersignature(words["countersigned"])
    name = home.settings.server_name
    if seen.by != name or seen.head.who != home.own_name:
        raise Refusal(
            f"the countersignature is by {seen.by} for {seen.head.who}", remedy="ask the coordinator to fix it"
        )
    refuse_forged(seen, home)
    home.log().keep(seen)


def coordinator_key(home: SiteHome, certificate: str) -> ec.EllipticCurvePublicKey:
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
    if not home.coordinator_path.exists() or home.coordinator_path.read_bytes() != certificate.encode():
        write_file(home.coordinator_path, certificate.encode())
    return key


# ---- the coordinator's half ----


def exchange(home: CoordinatorHome, site: str, ask: Ask) -> Countersigned:
    """Let a site countersign this log, and countersign the site's; gives what is kept of the site's."""
    certificate = home.certificate_path.read_text()
    told = ask(HEADS, {"head": asdict(home.log().head()), "certificate": certificate})
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
    seen = witness(home.witness_path(site), head, home.public_keys(), home.own_name, home.key)
    ask(COUNTERSIGNED, {"countersigned": seen.content()})
    return seen


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
