"""What has left a site, read from its audit log: the hashes of all replies, and the places on studies' lists they used.

What was read once is not read again; a log that is replaced or shorter than before is read anew.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from wardround.deploy.site.release.gate import ReleaseClaim
from wardround.deploy.trust.audit_log import SENT


class ReleaseRecord:
    """Of one site's log."""

    def __init__(self) -> None:
        self._hashes: set[bytes] = set()
        self._claims: dict[str, list[ReleaseClaim]] = {}
        self._approved: set[str] = set()
        self._read, self._file = 0, -1

    def read(self, path: Path) -> None:
        """Take up what was added."""
        try:
            with open(path, "rb") as lines:
                status = os.fstat(lines.fileno())
                if status.st_ino != self._file or status.st_size < self._read:
                    self._hashes, self._claims, self._approved = set(), {}, set()
                    self._read, self._file = 0, status.st_ino
                if status.st_size == self._read:
                    return
                lines.seek(self._read)
                content = lines.read()
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._hashes.update(SENT.findall(whole))
        for line in whole.splitlines():
            if b'"release":' in line or b'"kind":"approved"' in line:
                self._take(line)
        self._read += len(whole)

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)["entry"]
            if entry["kind"] == "approved":
                self._approved.add(str(entry["study"]))
            elif entry["kind"] in ("sent", "refused"):
                words = (entry["release"], entry["slot"], entry["request"], entry.get("sha256", ""))
                self._claims.setdefault(entry["study"], []).append(ReleaseClaim(*map(str, words)))
        except (ValueError, KeyError, TypeError):
            return  # `audit verify` tells of a line that is none of ours

    def has_hash(self, sha256: str) -> bool:
        return sha256.encode() in self._hashes

    def has_approval(self, study: str) -> bool:
        """Whether the log goes back to the study's approval, and so tells all that has left for it."""
        return study in self._approved

    def claims(self, study: str) -> tuple[ReleaseClaim, ...]:
        return tuple(self._claims.get(study, ()))

    def statistics(self, studies: Iterable[str]) -> int:
        """Different answers to queries that these studies were given, or refused after the rows were looked at."""
        found = {(study, one.kind, one.slot) for study in studies for one in self._claims.get(study, ())}
        return sum(kind.startswith("query/") for _, kind, _ in found)
