"""An append-only ledger of who did what in a study: JSON lines, chained by hashes, each signed by the site it names.

A line holds the entry, its number, the hash of the line before, its own hash (SHA-256 over the hash before and the
canonical JSON of the entry) and an Ed25519 signature of that hash by the site `who`. An edit, a deletion or another
order breaks the chain or a signature. Entries missing at the end leave a chain that is whole, so every append also
replaces a small signed file beside the ledger, the head: the number of entries and the last hash. Whoever puts back an
old ledger TOGETHER with its old head, or holds the key of every later entry, can still roll it back: no file alone can
tell. Hence `append` returns the head; a site that keeps it, and shows it to `verify` as a witness, finds that too.
Needs `cryptography` and a POSIX system (locks, file modes). An append costs two small writes that wait for the disk,
however long the ledger is; verifying reads all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.core.journals.journal import ROOT, Journal, Line, Violation
from wardround.core.journals.journal_head import Head, head_path, head_problems, load_head
from wardround.incentives.ledger_entries import ENTRY_SEAL, FORMAT, HEAD_SEAL, LedgerEntry, read_head
from wardround.incentives.ledger_keys import read_public_keys, signature_problem

Keys = Mapping[str, Ed25519PublicKey] | None
"""Whose signatures are checked; without any keys, none."""
BEHIND = "an append was interrupted (call mend: `wardround ledger mend`), or an old head was put back"


def line_problems(line: Line[LedgerEntry], keys: Keys) -> list[Violation]:
    """What is wrong with the signature of a line."""
    wrong = signature_problem(keys, line.entry.who, line.signature, ENTRY_SEAL + bytes.fromhex(line.hash))
    return [Violation(line.number, wrong)] if wrong else []


def signed_head_problems(name: str, head: Head, hashes: Sequence[str], keys: Keys, *, behind: str = "") -> list[str]:
    """What is wrong with the signature of a head, and what the head shows to be wrong with the ledger."""
    wrong = signature_problem(keys, head.who, head.signature, head.signed_bytes(HEAD_SEAL))
    return [
        *([f"{name}: {wrong}"] if wrong else []),
        *head_problems(name, head, hashes, "ledger", behind=behind),
    ]


@dataclass(frozen=True)
class Ledger:
    """The ledger in the file `path`, with its head beside it (`path` + ".head")."""

    path: Path

    @property
    def journal(self) -> Journal[LedgerEntry]:
        return Journal(self.path, FORMAT)

    @property
    def head_path(self) -> Path:
        return head_path(self.path)

    def append(self, entry: LedgerEntry, key: Ed25519PrivateKey) -> Head:
        """Add an entry signed with the key of the site it names; refuses a ledger that is torn, cut or behind."""
        with self.journal.lock(write=True) as file:
            last, head = self.journal.end(file), self.head()
            if last.torn or ((head.entries, head.hash) if head else (0, ROOT)) != (last.entries, last.hash):
                raise Refusal(
                    "the ledger does not end as its head says, so nothing was added",
                    where=str(self.path),
                    remedy="call mend if a process was interrupted here (`wardround ledger mend`), otherwise verify"
                    " it and find the lost entries",
                )
            try:
                end = self.journal.append(
                    file, last, entry.content(), sign=lambda digest: key.sign(ENTRY_SEAL + bytes.fromhex(digest)).hex()
                )
            except OSError as problem:
                raise Refusal(
                    f"the entry could not be written ({problem.strerror}), and the ledger is as it was",
                    where=str(self.path),
                    remedy="make room on the disk and append it again",
                ) from None
            return self.sign_head(end.entries, end.hash, entry.who, key)

    def mend(self, who: str, key: Ed25519PrivateKey) -> list[str]:
        """Put right what an interrupted append leaves, and only that; says what was done.

        Either the last line is torn (it is cut off: it never was an entry), or it is whole and the head one behind (the
        head is signed anew). A head that names more than is there is refused: entries were lost, not interrupted.
        """
        done = []
        with self.journal.lock(write=True, create=False) as file:
            last, head = self.journal.end(file), self.head()
            covered, known = (head.entries, head.hash) if head else (0, ROOT)
            if (covered, known) not in ((last.entries, last.hash), (last.entries - 1, last.previous)):
                raise Refusal(
                    f"the head names {covered} entries and the ledger ends otherwise after {last.entries}, which no"
                    " interruption explains",
                    where=str(self.path),
                    remedy="verify it, and restore both files from a copy",
                )
            if last.torn:
                self.journal.cut_torn_line(file, last.torn)
                done.append(f"a torn last line of {last.torn} bytes was cut off: its entry has to be appended again")
            if covered < last.entries:
                self.sign_head(last.entries, last.hash, who, key)
                done.append(f"the head was signed again by {who}: it now covers entry {last.entries}")
        return done

    def verify(self, public_keys: Mapping[str, str], *, witnesses: Sequence[Head] = ()) -> list[Violation]:
        """Everything that is wrong, or an empty list, given each site's public key (PEM) and heads kept earlier."""
        return self.examine(public_keys, witnesses)[1]

    def entries(self, public_keys: Mapping[str, str], *, witnesses: Sequence[Head] = ()) -> tuple[LedgerEntry, ...]:
        """The entries of a ledger that verifies; refused where it does not."""
        entries, findings = self.examine(public_keys, witnesses)
        if findings:
            more = f" and {len(findings) - 1} more findings" if len(findings) > 1 else ""
            raise Refusal(
                f"this ledger does not verify: {findings[0]}{more}",
                where=str(self.path),
                remedy="restore it from a copy, or call mend (`wardround ledger mend`) if a process was interrupted",
            )
        return entries

    def examine(
        self, public_keys: Mapping[str, str] | None, witnesses: Sequence[Head] = ()
    ) -> tuple[tuple[LedgerEntry, ...], list[Violation]]:
        """The entries that can be read, and everything that is wrong; without keys, beside the signatures."""
        keys = None if public_keys is None else read_public_keys(public_keys)
        with self.journal.lock(write=False) as file:
            chain = self.journal.check(file)
            try:
                head = self.head()
                missing = ["the head is missing: entries lost at the end could not be detected"]
                shown = signed_head_problems("the head", head, chain.hashes, keys, behind=BEHIND) if head else missing
            except Refusal as problem:
                shown = [problem.what]
        for head in witnesses:
            shown += signed_head_problems(f"the witness of {head.who!r}", head, chain.hashes, keys)
        unsigned = [problem for line in chain.lines for problem in line_problems(line, keys)]
        of_lines = sorted([*chain.violations, *chain.torn, *unsigned], key=lambda violation: violation.line)
        entries = tuple(line.entry for line in chain.lines)
        return entries, [*of_lines, *(Violation(0, what) for what in shown)]

    def head(self) -> Head | None:
        return load_head(self.path, read_head, FORMAT.remedy)

    def sign_head(self, entries: int, digest: str, who: str, key: Ed25519PrivateKey) -> Head:
        """Replace the head so that a reader, or a crash, sees the old one or the new."""
        unsigned = Head(entries, digest, who, "")
        head = replace(unsigned, signature=key.sign(unsigned.signed_bytes(HEAD_SEAL)).hex())
        try:
            write_whole(self.head_path, head.to_bytes() + b"\n")
        except OSError as problem:
            raise Refusal(
                f"entry {entries} was written, but its head could not be ({problem.strerror})",
                where=str(self.head_path),
                remedy="make room on the disk and call mend (`wardround ledger mend`); do not append the entry again",
            ) from None
        return head
