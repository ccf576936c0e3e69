"""Who signed a transcript: the coordinator its end, and the sites that were shown the same one.

A coordinator that shows two sites two transcripts needs two ends. Each site countersigns the one it was shown, and its
signature comes with the file that is handed out; sites whose signature is missing compare eight words by telephone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.errors import Refusal
from wardround.core.journals.journal_head import Head
from wardround.deploy.trust.certificates import certificate_summary, check_issued
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.log_heads import Keys, parse_countersigned
from wardround.deploy.trust.transcript.entries import head_problem, spoken, witness_problem
from wardround.deploy.trust.transcript.handout import TranscriptSource


@dataclass
class ReplayReport:
    """What a replay found: `problem` is the first thing that does not follow, `remarks` are worth a person's look."""

    study: str = ""
    rounds: int = 0
    replayed: int = 0
    """Rounds that were computed again."""
    problem: str = ""
    checked: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def check_signatures(
    source: TranscriptSource, authority: x509.Certificate | None, pinned: Mapping[str, Sequence[str]] | None = None
) -> ReplayReport:
    """Who signed the end, and which sites countersigned it; without the authority's certificate, by their own word."""
    report = ReplayReport()
    transcript, head = source.transcript, source.transcript.head
    if head is None or transcript.opening is None:
        return report  # told by the replay
    keys, wrong = keys_in(transcript.certificate, "coordinator", authority)
    wrong = wrong or head_problem(keys, head)
    if wrong:
        report.problem = f"the signature under the transcript: {wrong}"
        return report
    sure = "" if authority is not None else "; whether the certificate is the consortium's was not checked (--home)"
    report.checked.append(f"signed by the coordinator {head.who}{sure}")
    agreed = []
    for site in transcript.opening.sites:
        statement = source.witnesses.get(site)
        if statement is None:
            continue
        if is_invented(statement, head, keys):
            report.remarks.append(f"{site} has signed an end that the coordinator never signed, which does not count")
            continue
        wrong = witness_words(site, statement, head, authority)
        if wrong:
            report.problem = wrong
            return report
        agreed.append(site)
    # Whoever holds the authority's key can certify any key: only a pinned one shows who signed.
    known = [site for site in agreed if is_pinned(site, source.witnesses[site], pinned or {})]
    if known:
        report.checked.append(f"countersigned by {', '.join(known)}: they were shown the same transcript")
    strange = [site for site in agreed if site not in known and site in (pinned or {})]
    if strange:
        report.problem = f"the countersignature of {strange[0]} is by another key than the one that is pinned here"
        return report
    unsure = [site for site in agreed if site not in known]
    if unsure:
        report.remarks.append(
            f"countersigned in the name of {', '.join(unsure)}, with keys that are not pinned here: compare the eight "
            "words by telephone to know that they were shown the same transcript"
        )
    missing = [site for site in transcript.opening.sites if site not in agreed]
    if missing:
        report.remarks.append(
            f"no countersignature of {', '.join(missing)} came with it: compare the eight words by telephone to know "
            "that they were shown the same transcript"
        )
    return report


def is_pinned(site: str, statement: Any, pinned: Mapping[str, Sequence[str]]) -> bool:
    """Whether the key of a site's certificate is one whose fingerprint is known here."""
    keys, _ = keys_in(str(statement["certificate"]), "site", None)
    return any(fingerprint(key) in pinned.get(site, ()) for key in keys.get(site, ()))


def is_invented(statement: Any, head: Head, signer: Keys) -> bool:
    """Whether a site countersigned another end than this one, which the coordinator never signed."""
    try:
        seen = parse_countersigned(statement["countersigned"])
    except (KeyError, TypeError, ValueError):
        return False
    return seen.head != head and bool(head_problem(signer, seen.head))


def witness_words(site: str, statement: Any, head: Head, authority: x509.Certificate | None) -> str:
    """What is wrong with a site's countersignature, or nothing."""
    try:
        seen, certificate = parse_countersigned(statement["countersigned"]), str(statement["certificate"])
    except (KeyError, TypeError, ValueError):
        return f"the countersignature of {site} is malformed"
    keys, wrong = keys_in(certificate, "site", authority)
    wrong = wrong or (f"it is by {seen.by}" if seen.by != site else witness_problem(keys, seen))
    if wrong:
        return f"the countersignature of {site}: {wrong}"
    if seen.head != head:
        return f"{site} has countersigned another transcript, which ends with {spoken(seen.head.hash)}"
    return ""


def keys_in(certificate: str, role: str, authority: x509.Certificate | None) -> tuple[Keys, str]:
    """The key of a certificate under the name in it, and what is wrong with it."""
    try:
        read = x509.load_pem_x509_certificate(certificate.encode())
        found = certificate_summary(read) if authority is None else check_issued(read, authority, where="it")
    except ValueError:
        return {}, "the certificate cannot be read"
    except Refusal as refusal:
        return {}, f"the certificate is not the consortium's: {refusal.what}"
    key = read.public_key()
    if found.role != role or not isinstance(key, ec.EllipticCurvePublicKey):
        return {}, f"the certificate is that of the {found.role} {found.name}"
    return {found.name: [key]}, ""
