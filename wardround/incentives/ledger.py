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

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from wardround.core.errors import Refusal
from wardround.core.files import append_line, write_whole
from wardround.core.journal import (
    LONGEST,
    ROOT,
    End,
    Finding,
    canonical,
    locked,
    numbered_lines,
    place_problems,
    tail,
)
from wardround.incentives.ledger_entries import (
    ENTRY_SEAL,
    Entry,
    Head,
    Line,
    chained,
    head_message,
    read_head,
    read_line,
)
from wardround.incentives.ledger_keys import read_public_keys, signature_problem

__all__ = ["Finding", "Ledger"]


def line_problems(line: Line, number: int, before: str, keys: Mapping[str, Ed25519PublicKey] | None) -> list[str]:
    """What is wrong with a line that should be the `number`-th, after one with the hash `before` (empty: unknown)."""
    problems = place_problems(line.number, line.previous, number, before)
    if chained(line.previous, line.entry) != line.hash:
        problems.append("its content was changed: the hash does not fit")
    wrong = signature_problem(keys, line.entry.who, line.signature, ENTRY_SEAL + bytes.fromhex(line.hash))
    return [*problems, wrong] if wrong else problems


def head_problems(
    name: str, head: Head | None, hashes: Sequence[str], keys: Mapping[str, Ed25519PublicKey] | None, *, last: bool
) -> list[str]:
    """What a head shows to be wrong with the chain of `hashes`; the `last` one has to cover all of it."""
    whole = len(hashes) - 1
    if head is None:
        return [f"{name} is missing: entries lost at the end could not be told"]
    wrong = signature_problem(keys, head.who, head.signature, head_message(head.entries, head.hash, head.who))
    problems = [f"{name}: {wrong}"] if wrong else []
    if head.entries > whole:
        problems.append(f"{name} names {head.entries} entries and the ledger has {whole}: its end is missing")
    elif hashes[head.entries] != head.hash:
        problems.append(f"{name} names another entry {head.entries} than the ledger holds: history was rewritten")
    elif last and head.entries < whole:
        problems.append(
            f"{name} covers {head.entries} of {whole} entries: an append was interrupted (call mend:"
            " `wardround ledger mend`), or an old head was put back"
        )
    return problems


@dataclass(frozen=True)
class Ledger:
    """The ledger in the file `path`, with its head beside it (`path` + ".head")."""

    path: Path

    @property
    def head_path(self) -> Path:
        return self.path.with_name(self.path.name + ".head")

    def append(self, entry: Entry, key: Ed25519PrivateKey) -> Head:
        """Add an entry signed with the key of the site it names; refuses a ledger that is torn, cut or behind."""
        with self.locked(os.O_RDWR | os.O_CREAT) as file:
            last, head = self.end(file), self.head()
            if last.torn or ((head.entries, head.hash) if head else (0, ROOT)) != (last.entries, last.hash):
                raise Refusal(
                    "the ledger does not end as its head says, so nothing was added",
                    where=str(self.path),
                    remedy="call mend if a process was interrupted here (`wardround ledger mend`), otherwise verify"
                    " it and find the lost entries",
                )
            digest = chained(last.hash, entry)
            line = {
                "entry": entry.content(),
                "hash": digest,
                "number": last.entries + 1,
                "previous": last.hash,
                "signature": key.sign(ENTRY_SEAL + bytes.fromhex(digest)).hex(),
            }
            self.write(file, canonical(line) + b"\n")
            return self.sign_head(last.entries + 1, digest, entry.who, key)

    def mend(self, who: str, key: Ed25519PrivateKey) -> list[str]:
        """Put right what an interrupted append leaves, and only that; says what was done.

        Either the last line is torn (it is cut off: it never was an entry), or it is whole and the head one behind (the
        head is signed anew). A head that names more than is there is refused: entries were lost, not interrupted.
        """
        done = []
        with self.locked(os.O_RDWR) as file:
            last, head = self.end(file), self.head()
            covered, known = (head.entries, head.hash) if head else (0, ROOT)
            if (covered, known) not in ((last.entries, last.hash), (last.entries - 1, last.previous)):
                raise Refusal(
                    f"the head names {covered} entries and the ledger ends otherwise after {last.entries}, which no"
                    " interruption explains",
                    where=str(self.path),
                    remedy="verify it, and restore both files from a copy",
                )
            if last.torn:
                os.ftruncate(file, os.fstat(file).st_size - last.torn)
                os.fsync(file)
                done.append(f"a torn last line of {last.torn} bytes was cut off: its entry has to be appended again")
            if covered < last.entries:
                self.sign_head(last.entries, last.hash, who, key)
                done.append(f"the head was signed anew by {who}: it now covers entry {last.entries}")
        return done

    def verify(self, public_keys: Mapping[str, str], *, witnesses: Sequence[Head] = ()) -> list[Finding]:
        """Everything that is wrong, or an empty list, given each site's public key (PEM) and heads kept earlier."""
        return self.examine(public_keys, witnesses)[1]

    def entries(self, public_keys: Mapping[str, str], *, witnesses: Sequence[Head] = ()) -> tuple[Entry, ...]:
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
    ) -> tuple[tuple[Entry, ...], list[Finding]]:
        """The entries that can be read, and everything that is wrong; without keys, beside the signatures."""
        keys = None if public_keys is None else read_public_keys(public_keys)
        findings: list[Finding] = []
        entries: list[Entry] = []
        hashes = [ROOT]  # after 0, 1, 2, ... lines; empty where a line cannot be read
        with self.locked(os.O_RDONLY) as handle, os.fdopen(os.dup(handle), "rb") as file:
            for number, raw in numbered_lines(file):
                if isinstance(raw, Finding):
                    findings.append(raw)
                    break
                try:
                    line = read_line(raw)
                except ValueError as problem:
                    findings.append(Finding(number, str(problem)))
                    hashes.append("")
                    continue
                findings += [Finding(number, what) for what in line_problems(line, number, hashes[-1], keys)]
                hashes.append(line.hash)
                entries.append(line.entry)
            try:
                shown = head_problems("the head", self.head(), hashes, keys, last=True)
            except Refusal as problem:
                shown = [problem.what]
        for head in witnesses:
            shown += head_problems(f"the witness of {head.who!r}", head, hashes, keys, last=False)
        return tuple(entries), [*findings, *(Finding(0, what) for what in shown)]

    def head(self) -> Head | None:
        try:
            with open(self.head_path, "rb") as file:
                return read_head(file.read(LONGEST))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as problem:
            remedy = "restore both files from a copy"
            raise Refusal(f"the head cannot be read: {problem}", where=str(self.head_path), remedy=remedy) from None

    def end(self, file: int) -> End:
        """How the file ends; only its tail is read."""
        last, torn = tail(file)
        if last is None:
            return End(0, ROOT, "", torn)
        try:
            line = read_line(last)
            if chained(line.previous, line.entry) != line.hash:
                raise ValueError("its content was changed")
        except ValueError as problem:
            raise Refusal(
                f"the last entry is damaged: {problem}", where=str(self.path), remedy="restore both files from a copy"
            ) from None
        return End(line.number, line.hash, line.previous, torn)

    def write(self, file: int, line: bytes) -> None:
        """Add a line and wait until it is on the disk; what could not be written whole is taken back."""
        if len(line) > LONGEST:
            raise Refusal(
                f"an entry of {len(line)} bytes is too long", where=str(self.path), remedy="split its numbers"
            )
        try:
            append_line(file, line)
        except OSError as problem:
            raise Refusal(
                f"the entry could not be written ({problem.strerror}), and the ledger is as it was",
                where=str(self.path),
                remedy="make room on the disk and append it again",
            ) from None

    def sign_head(self, entries: int, digest: str, who: str, key: Ed25519PrivateKey) -> Head:
        """Replace the head so that a reader, or a crash, sees the old one or the new."""
        head = Head(entries, digest, who, key.sign(head_message(entries, digest, who)).hex())
        try:
            write_whole(self.head_path, canonical(asdict(head)) + b"\n")
        except OSError as problem:
            raise Refusal(
                f"entry {entries} was written, but its head could not be ({problem.strerror})",
                where=str(self.head_path),
                remedy="make room on the disk and call mend (`wardround ledger mend`); do not append the entry again",
            ) from None
        return head

    @contextmanager
    def locked(self, flags: int) -> Iterator[int]:
        """The open file, while no other process writes it."""
        with locked(self.path, flags, "ledger") as file:
            yield file
