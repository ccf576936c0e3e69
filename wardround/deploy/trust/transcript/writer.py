"""Writes the transcript of a study while it trains; opened again after a crash it goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from wardround.core.contracts import Tree
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.core.journals.journal import Journal
from wardround.core.journals.journal_head import Head, head_path
from wardround.deploy.trust.transcript.entries import (
    CERTIFICATE,
    FORMAT,
    LARGEST,
    LONGEST_REASON,
    NAME,
    AnyEntry,
    Closing,
    LossEntry,
    Opening,
    Resumption,
    RoundEntry,
    TranscriptSigner,
    digest_of,
    leaves_of,
    load_transcript_head,
    sign_transcript,
    sum_path,
)


@dataclass
class TranscriptWriter:
    """The transcript in `folder`."""

    folder: Path
    keeps_sums: bool = False
    round: int = 0
    """The last round that was concluded since this process began."""
    _entries: list[AnyEntry] = field(default_factory=list)
    _live: dict[int, RoundEntry] = field(default_factory=dict)
    _losses: dict[int, LossEntry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.journal.lock(write=True) as file:
            end = self.journal.end(file)
            if end.torn:
                self.journal.cut_torn_line(file, end.torn)
            chain = self.journal.check(file)
        if chain.violations:
            raise Refusal(
                f"the transcript is damaged: {chain.violations[0]}", where=str(self.path), remedy=FORMAT.remedy
            )
        for line in chain.lines:
            self._take(line.entry)

    @property
    def path(self) -> Path:
        return self.folder / NAME

    @property
    def journal(self) -> Journal[AnyEntry]:
        return Journal(self.path, FORMAT)

    def open(self, opening: Opening, first: Tree) -> None:
        """The first entry; one that is there already must say the same, but for the software.

        The first model is kept beside it: another processor draws it from the seed with other last bits.
        """
        self.keeps_sums = opening.sums
        self._keep(opening.model, first)
        if not self._entries:
            self._append(opening)
        first = self._entries[0]
        if not isinstance(first, Opening) or first.model_copy(update={"software": opening.software}) != opening:
            raise Refusal(
                "the transcript belongs to another study, or the study was changed since",
                where=str(self.path),
                remedy="resume with the study that the run was started with, or begin in another folder",
            )
        last = [one.software for one in self._entries if isinstance(one, Opening | Resumption)][-1]
        if last != opening.software and not isinstance(self._entries[-1], Closing):
            self._append(Resumption(software=opening.software))

    def add_round(
        self,
        number: int,
        sent: Tree,
        asked: Sequence[str],
        answers: Mapping[str, str],
        absent: Mapping[str, str],
        total: Tree | None,
        state: Tree,
        parts: Mapping[str, Tree] | None = None,
    ) -> None:
        """What a round was; the sum is on the disk before the entry that names it."""
        self.round = number
        entry = RoundEntry(
            round=number,
            sent=digest_of(sent),
            asked=tuple(asked),
            answers=dict(answers),
            absent={site: why[:LONGEST_REASON] for site, why in absent.items()},
            sum="" if total is None else digest_of(total),
            state=digest_of(state),
            parts={site: digest_of(one) for site, one in parts.items()} if parts else None,
        )
        if total is not None and self.keeps_sums:
            self._keep(entry.sum, total)
        if self._live.get(number) != entry:
            self._append(entry)

    def add_losses(self, sent: Tree, answers: Mapping[str, str]) -> None:
        entry = LossEntry(round=self.round, sent=digest_of(sent), answers=dict(answers))
        if self._losses.get(self.round) != entry:
            self._append(entry)

    def close(self, closing: Closing, signer: TranscriptSigner) -> Head:
        """The last entry and the signed end, the same however often it is asked for."""
        if not self._entries or self._entries[-1] != closing:
            self._append(closing)
        with self.journal.lock(write=True) as file:
            end = self.journal.end(file)
        head = load_transcript_head(self.path)
        if head is None or (head.entries, head.hash, head.who) != (end.entries, end.hash, signer.who):
            head = sign_transcript(end.entries, end.hash, signer)
            write_whole(self.folder / CERTIFICATE, signer.certificate.encode())
            write_whole(head_path(self.path), head.to_bytes() + b"\n")
        return head

    def message(self) -> dict[str, np.ndarray[Any, Any]]:
        """The closed transcript as arrays of a message; nothing where it is too long to be sent."""
        files = {"lines": self.path, "head": head_path(self.path), "certificate": self.folder / CERTIFICATE}
        if self.path.stat().st_size > LARGEST:
            return {}
        return {name: np.frombuffer(path.read_bytes(), np.uint8) for name, path in files.items()}

    def _keep(self, digest: str, tree: Tree) -> None:
        path = sum_path(self.folder, digest)
        if not path.exists():
            write_whole(path, save(leaves_of(tree)))

    def _append(self, entry: AnyEntry) -> None:
        with self.journal.lock(write=True) as file:
            self.journal.append(file, self.journal.end(file), entry.content())
        self._take(entry)

    def _take(self, entry: AnyEntry) -> None:
        self._entries.append(entry)
        if isinstance(entry, RoundEntry):
            # A round that was done again takes away what came after it the first time.
            for number in [one for one in self._live if one > entry.round]:
                del self._live[number]
            self._live[entry.round] = entry
        elif isinstance(entry, LossEntry):
            self._losses[entry.round] = entry
