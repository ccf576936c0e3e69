"""The membership log: every site that was admitted, renewed, given a new key or shut out, in one hash-chained file.

The coordinator keeps it (membership.jsonl), every site has a copy, and every site signs how far it has seen it. Since
each site is shown the others' signed statements, a coordinator that told two sites two stories is found at the next
exchange. What an entry may say follows from the ones before it: a name keeps its key unless the old key signed the new
one, a key has one name, and whoever was revoked does not come back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.clock import timestamp
from wardround.core.errors import Refusal
from wardround.core.journals.journal import ROOT, Chain, End, Format, Journal
from wardround.core.journals.journal_head import Head
from wardround.deploy.trust.certificates import Key, certificate_summary
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.log_heads import Keys, sign, signature_problem
from wardround.deploy.trust.rotations import is_proven, key_from_hex, key_hex

ADMITTED, RENEWED, ROTATED, REVOKED, COORDINATOR = "admitted", "renewed", "rotated", "revoked", "coordinator"
ADMITTED_SECOND = "admitted as second server"
KINDS = (ADMITTED, ADMITTED_SECOND, RENEWED, ROTATED, REVOKED, COORDINATOR)
# A signature of one sort can never be passed off as one of the other.
HEAD_SEAL, STATEMENT_SEAL = b"wardround membership head\n", b"wardround membership statement\n"
LONGEST_WORD = 2000


@dataclass(frozen=True)
class Change:
    """One change of membership; `key` in hexadecimal DER, `proof` is the old key's signature under a new one."""

    kind: str
    name: str
    key: str
    serial: str
    until: str
    time: str
    proof: str = ""


def read_change(content: Mapping[str, Any]) -> Change:
    """An entry of the log; a ValueError or TypeError says what is wrong."""
    change = Change(**content)
    if change.kind not in KINDS or any(
        not isinstance(one, str) or len(one) > LONGEST_WORD for one in asdict(change).values()
    ):
        raise ValueError("it is no change of membership")
    key_from_hex(change.key)
    return change


FORMAT: Format[Change] = Format(
    "membership log", read_change, "restore it from a backup; sites notice a log that was cut"
)


def change_of(kind: str, certificate: x509.Certificate, *, proof: str = "") -> Change:
    """The entry about a certificate that was signed or revoked."""
    summary, key = certificate_summary(certificate), certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return Change(kind, summary.name, key_hex(key), summary.serial, f"{summary.until:%Y-%m-%d}", timestamp(), proof)


@dataclass(frozen=True)
class MembershipLog:
    """The log or a copy of it in the file `path`."""

    path: Path

    @property
    def journal(self) -> Journal[Change]:
        return Journal(self.path, FORMAT)

    def append(self, *changes: Change) -> End:
        """Write changes down and wait for the disk; one that cannot be (see `problem_with`) is refused."""
        with self.journal.lock(write=True) as file:
            end = self.journal.end(file)
            if end.torn:
                self.journal.cut_torn_line(file, end.torn)
            members = Members.of(line.entry for line in self.journal.check(file).lines)
            for change in changes:
                members = members.after(change)
            try:
                return self.journal.append(file, end, *(asdict(change) for change in changes))
            except OSError as problem:
                raise Refusal(
                    f"the membership log cannot be written: {problem.strerror}",
                    where=str(self.path),
                    remedy="free some disk space",
                ) from None

    def chain(self) -> Chain[Change]:
        """All of it, with what is wrong; an empty one where there is no file."""
        if not self.path.exists():
            return Chain((), (ROOT,), (), ())
        with self.journal.lock(write=False) as file:
            return self.journal.check(file)

    def read(self) -> "Members":
        """Who belongs to the consortium; refused where the file was damaged or its entries cannot be."""
        chain = self.chain()
        if chain.violations:
            raise Refusal(
                f"the membership log is damaged: {chain.violations[0]}", where=str(self.path), remedy=FORMAT.remedy
            )
        return Members.of(line.entry for line in chain.lines)

    def lines_after(self, entries: int) -> list[dict[str, Any]]:
        """What others need to follow the log from there on."""
        lines = self.chain().lines
        return [{"entry": asdict(line.entry), "hash": line.hash} for line in lines[entries:]]

    def head(self, who: str, key: Key, seal: bytes = HEAD_SEAL) -> Head:
        """How far the log goes, signed."""
        chain = self.chain()
        return sign_membership(len(chain.hashes) - 1, chain.hashes[-1], who, key, seal)


def sign_membership(entries: int, digest: str, who: str, key: Key, seal: bytes) -> Head:
    unsigned = Head(entries, digest, who, "")
    return Head(entries, digest, who, sign(key, unsigned.signed_bytes(seal)))


def head_problem(keys: Keys, head: Head, seal: bytes) -> str:
    """What is wrong with the signature of a head or statement, or nothing."""
    return signature_problem(keys, head.who, head.signature, head.signed_bytes(seal))


@dataclass(frozen=True)
class Members:
    """Who belongs to a consortium after some entries: every name with its keys, the last one being in use."""

    keys: Mapping[str, tuple[str, ...]]
    revoked: frozenset[str] = frozenset()
    coordinator: str = ""
    seconds: frozenset[str] = frozenset()
    """Second servers, which are no sites."""

    @staticmethod
    def of(changes: Iterable[Change]) -> "Members":
        members = Members({})
        for change in changes:
            members = members.after(change)
        return members

    @property
    def sites(self) -> tuple[str, ...]:
        """Those that were not revoked."""
        return tuple(one for one in self.witnesses if one not in self.seconds)

    @property
    def witnesses(self) -> tuple[str, ...]:
        """All who sign how far they have seen the log: the sites, and second servers."""
        return tuple(sorted(name for name in self.keys if name not in self.revoked and name != self.coordinator))

    def fingerprints(self, name: str) -> tuple[str, ...]:
        """Of all keys that a name ever had, the present one last."""
        return tuple(fingerprint(key_from_hex(key)) for key in self.keys.get(name, ()))

    def public_keys(self) -> dict[str, list[ec.EllipticCurvePublicKey]]:
        return {name: [key_from_hex(key) for key in keys] for name, keys in self.keys.items()}

    def problem_with(self, change: Change) -> str:
        """Why a change cannot follow on these members, or nothing."""
        name, known = change.name, self.keys.get(change.name, ())
        others = [one for one, keys in self.keys.items() if one != name and change.key in keys]
        alike = [one for one in self.keys if one.casefold() == name.casefold()]
        problem = ""
        if others:
            problem = f"the key of {name} already belongs to {others[0]}"
        elif name in self.revoked:
            problem = f"{name} was revoked"
        elif change.kind == COORDINATOR:
            if self.coordinator != name and (self.coordinator or alike):
                problem = "its name is another's"
            elif known and known[-1] != change.key:
                problem = "it has another key"
        elif change.kind in (ADMITTED, ADMITTED_SECOND):
            problem = f"there is already a party called {alike[0]}" if alike else ""
        elif not known or name == self.coordinator:
            problem = f"{name} was never admitted"
        elif change.kind == ROTATED:
            if change.key in known or not is_proven(name, known[-1], change.key, change.proof):
                problem = f"the old key of {name} did not sign the new one"
        elif change.key != known[-1]:
            problem = f"{name} has another key"
        return problem

    def after(self, change: Change) -> "Members":
        problem = self.problem_with(change)
        if problem:
            raise Refusal(
                f"the membership log cannot say that {change.name} was {change.kind}: {problem}",
                where="membership log",
                remedy="find out with the other sites, by telephone, who changed it",
            )
        keys = dict(self.keys)
        if change.kind in (ADMITTED, ADMITTED_SECOND, ROTATED) or (
            change.kind == COORDINATOR and change.name not in keys
        ):
            keys[change.name] = (*keys.get(change.name, ()), change.key)
        revoked = self.revoked | ({change.name} if change.kind == REVOKED else set())
        seconds = self.seconds | ({change.name} if change.kind == ADMITTED_SECOND else set())
        coordinator = change.name if change.kind == COORDINATOR else self.coordinator
        return Members(keys, frozenset(revoked), coordinator, frozenset(seconds))


def parse_lines(content: Any) -> list[tuple[Change, str]]:
    """Changes with their hashes as another party sent them; a ValueError says what is wrong."""
    if not isinstance(content, Sequence) or isinstance(content, str):
        raise ValueError("the entries cannot be read")
    found = []
    for one in content:
        if not isinstance(one, Mapping) or not isinstance(one.get("entry"), Mapping):
            raise ValueError("an entry cannot be read")
        try:
            found.append((read_change(one["entry"]), str(one.get("hash"))))
        except TypeError:
            raise ValueError("an entry cannot be read") from None
    return found
