"""A site's one privacy ledger, for all its studies: where it lies, what its policy allows, what is spent and left.

Patients and whole sites are two ledgers in one file (`privacy.jsonl`): each level has the policy's cap for itself. What
studies promise, of either level, is added up when they are approved.

The ledger's head (how many debits, the last hash) is kept twice: signed in a small file beside it, and in the audit
log, whose entry for everything that leaves names it. The other side countersigns the log, so a ledger that was cut,
deleted or put back shows, and nothing leaves. Neither waits for the disk again: the file is written in place, and the
log's entry is written anyway. A ledger from before has no head; its next debit gives it one.
"""

import os
import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wardround.core.errors import Refusal
from wardround.core.files import BINARY, write_at, write_whole
from wardround.core.journals.journal import ROOT, Journal, Violation
from wardround.core.journals.journal_head import Head, head_path, load_head
from wardround.deploy.home import SiteHome
from wardround.deploy.site.policy import Policy
from wardround.deploy.site.policy_file import read_policy
from wardround.deploy.trust.log_heads import head_bytes, read_head, sign, signature_problem
from wardround.privacy.budget import FORMAT, REMEDY, Budget, Charge, KeptHead, epsilon_of, ledger_problems

SEAL = b"wardround privacy ledger head\n"
NAMED = "ledger"
"""The word of an audit log's entry under which it names the ledger's head."""
ANCHOR = re.compile(rb'"ledger":\{"entries":(\d{1,15}),"hash":"([0-9a-f]{64})"\}')
BESIDE, LOGGED = "its signed head", "the audit log"


LEDGER = "privacy.jsonl"
_head_file = threading.Lock()
"""One study's debit writes the head in place while another's answer names it in the audit log, for good."""
LEDGER_HEAD = f"{LEDGER}.head"


def ledger_path(home: SiteHome) -> Path:
    return home.path / LEDGER


def budget_of(home: SiteHome) -> Budget:
    """The ledger, to be debited, under what the policy says now."""
    policy = read_policy(home.policy_path)
    return Budget(
        ledger_path(home),
        policy.epsilon,
        delta=policy.delta,
        site=home.settings.name,
        heads=lambda: kept_heads(home),
        keep=lambda entries, hash: write_ledger_head(home, entries, hash),
    )


# ---- the ledger's head, kept elsewhere ----


def write_ledger_head(home: SiteHome, entries: int, hash: str) -> None:
    """Sign the head and put it beside the ledger, in place: a power cut may leave the one before."""
    unsigned = Head(entries, hash, home.settings.name, "")
    content = head_bytes(Head(entries, hash, home.settings.name, sign(home.key, unsigned.signed_bytes(SEAL))))
    path = head_path(ledger_path(home))
    with _head_file:
        try:
            handle = os.open(path, os.O_WRONLY | BINARY)
        except FileNotFoundError:
            write_whole(path, content)
            return
        try:
            write_at(handle, content, 0)
        finally:
            os.close(handle)


def kept_heads(home: SiteHome) -> list[KeptHead]:
    """The ledger's head as it lies beside it, if it is signed with the site's key, and as the audit log last named it.

    Refused where the one beside it cannot be read, or is not the site's.
    """
    found = []
    beside = load_head(ledger_path(home), read_head, REMEDY)
    if beside is not None:
        refuse_forged(home, beside)
        found.append(KeptHead(BESIDE, beside.entries, beside.hash))
    logged = _anchors.setdefault(home.audit_path, LoggedAnchor()).last(home.audit_path)
    return found if logged is None else [*found, logged]


def refuse_forged(home: SiteHome, head: Head) -> None:
    seen = (head.who, head.signature, head.signed_bytes(SEAL))
    # A key that was renewed is looked for only where the present one did not sign.
    if signature_problem({head.who: [home.key.public_key()]}, *seen) and signature_problem(home.public_keys(), *seen):
        raise Refusal(
            "the head of the privacy ledger is not signed by this site, so nothing may leave",
            where=str(head_path(ledger_path(home))),
            remedy=REMEDY,
        )


class LoggedAnchor:
    """The last head of the ledger that an audit log names; what was read once is not read again."""

    def __init__(self) -> None:
        self._last: KeptHead | None = None
        self._read, self._file = 0, -1

    def last(self, path: Path) -> KeptHead | None:
        try:
            with open(path, "rb") as lines:
                status = os.fstat(lines.fileno())
                if status.st_ino != self._file or status.st_size < self._read:
                    self._last, self._read, self._file = None, 0, status.st_ino
                lines.seek(self._read)
                content = lines.read()
        except FileNotFoundError:
            return None
        whole = content[: content.rfind(b"\n") + 1]
        for entries, hash in ANCHOR.findall(whole)[-1:]:
            self._last = KeptHead(LOGGED, int(entries), hash.decode())
        self._read += len(whole)
        return self._last


_anchors: dict[Path, LoggedAnchor] = {}


def anchor(home: SiteHome) -> dict[str, Any]:
    """What an entry of the audit log says of the ledger: nothing before the first debit."""
    with _head_file:
        beside = load_head(ledger_path(home), read_head, REMEDY)
    return {} if beside is None else {NAMED: {"entries": beside.entries, "hash": beside.hash}}


def ledger_findings(home: SiteHome, entries: Iterable[Mapping[str, Any]]) -> list[Violation]:
    """What is wrong with the ledger of a home, by its own chain and by all heads that the log's entries name."""
    hashes: tuple[str, ...] = (ROOT,)
    findings = list[Violation]()
    if ledger_path(home).exists():
        journal = Journal(ledger_path(home), FORMAT)
        with journal.lock(write=False) as file:
            chain = journal.check(file)
        hashes, findings = (
            chain.hashes,
            [Violation(one.line, f"privacy ledger: {one.what}") for one in chain.violations],
        )
    named = [entry[NAMED] for entry in entries if isinstance(entry.get(NAMED), Mapping)]
    heads = [KeptHead(LOGGED, int(one["entries"]), str(one["hash"])) for one in named]
    try:
        beside = load_head(ledger_path(home), read_head, REMEDY)
        if beside is not None:
            refuse_forged(home, beside)
            heads.append(KeptHead(BESIDE, beside.entries, beside.hash))
    except Refusal as refusal:
        findings.append(Violation(0, f"privacy ledger: {refusal.what}"))
    return findings + [Violation(0, f"privacy ledger: {problem}") for problem in ledger_problems(hashes, heads)]


# ---- what is spent and left ----


def charged_epsilon(home: SiteHome, policy: Policy, study: str | None = None) -> float:
    """The epsilon of everything that the ledger holds, of one study or of all: that of the level that spent more."""
    charges = Budget(ledger_path(home), delta=policy.delta, heads=lambda: kept_heads(home)).charges()
    return max(epsilon_at(charges, level, policy.delta, study) for level in ("sample", "site"))


def spending_sentence(promised: float | None, paid: float) -> str:
    """What a study has spent of what it promised; nothing for one without noise that was never charged."""
    if promised is None:
        return f"epsilon {paid:.3g} spent" if paid else ""
    return f"epsilon {paid:.3g} of {promised:g} spent"


def total_sentences(policy: Policy, promised: float, paid: float) -> list[str]:
    """How the site stands with all its studies; nothing where neither policy nor ledger know of an epsilon."""
    if policy.epsilon is not None:
        return [
            f"The policy allows an epsilon of {policy.epsilon:g}: {promised:g} is promised to approved studies, "
            f"{paid:.3g} is spent, and {max(0.0, policy.epsilon - promised):g} is still available."
        ]
    return [f"All studies together have spent an epsilon of {paid:.3g}; the policy sets no limit."] if paid else []


def epsilon_at(charges: list[Charge], level: str, delta: float, study: str | None) -> float:
    return epsilon_of([charge for charge in charges if study in (None, charge.study)], delta, level=level)
