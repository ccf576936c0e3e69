"""A coordinator that lies in its transcript: it holds its own key, so it can rewrite and sign whatever it likes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.in_process import NAMES, Consortium
from wardround.core.contracts import Message
from wardround.core.journals.journal import Journal
from wardround.core.journals.journal_head import head_path
from wardround.deploy.coordinator.transcript_record import signer_of
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.trust.transcript.entries import FORMAT, NAME, sign_transcript, transcript_folder
from wardround.study.file import Study

Entries = list[dict[str, Any]]


def entries_of(folder: Path) -> Entries:
    journal = Journal(folder / NAME, FORMAT)
    with journal.lock(write=False) as file:
        return [line.entry.content() for line in journal.check(file).lines]


def forge(home: CoordinatorHome, folder: Path, change: Callable[[Entries], Entries | None]) -> None:
    """Rewrite the transcript in a folder, chain it anew and sign its end with the coordinator's own key."""
    entries = entries_of(folder)
    entries = change(entries) or entries
    (folder / NAME).unlink()
    journal = Journal(folder / NAME, FORMAT)
    with journal.lock(write=True) as file:
        end = journal.append(file, journal.end(file), *entries)
    head = sign_transcript(end.entries, end.hash, signer_of(home))
    head_path(folder / NAME).write_bytes(head.to_bytes() + b"\n")


def rounds_in(entries: Entries) -> Entries:
    return [one for one in entries if one["kind"] == "round"]


class LyingCoordinator(Consortium):
    """Changes requests on their way: `lie` gets site, topic, header and message, and gives the message to send."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, NAMES)
        self.lie: Callable[[str, str, Mapping[str, Any], Message], Message] = lambda site, topic, header, message: (
            message
        )
        self.alarms: dict[str, list[str]] = {name: [] for name in NAMES}
        for name, handler in self.handlers.items():
            handler.on_refusal = lambda topic, why, name=name: self.alarms[name].append(why)

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        header, message = decode(body)
        changed = self.lie(site, topic, header, message)
        return super().ask(site, topic, body if changed is message else encode(header, changed), within)

    def transcript(self, study: Study) -> Path:
        return transcript_folder(self.run(study))

    def sites_own(self, site: str, study: Study) -> Path:
        return transcript_folder(self.homes[site].folder(study_id(study)))

    def as_message(self, folder: Path) -> dict[str, Any]:
        """What a forged folder looks like in a request."""
        files = {"lines": folder / NAME, "head": head_path(folder / NAME), "certificate": folder / "coordinator.pem"}
        return {name: np.frombuffer(path.read_bytes(), np.uint8) for name, path in files.items()}
