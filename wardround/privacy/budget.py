"""A site's privacy ledger: what all its studies have spent, debited before anything leaves, never refunded.

One file of JSON lines, each on the disk before `debit` returns, each with the hash of the one before. A request that
comes again after a crash is not charged twice: it is known by study, round and the hash of what was asked. Another
question in a round that was answered already is refused: two answers would tell more than was charged for.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from wardround.core.errors import Refusal
from wardround.core.files import append_line, sync_folder
from wardround.core.journal import DIGEST, ROOT, canonical, hash_after, locked, numbered_lines, parsed
from wardround.privacy.accountant import Step, added_up, epsilon, renyi_epsilon

LEVELS = ("sample", "site")
FIELDS = {"level": str, "study": str, "round": int, "request": str, "steps": list, "previous": str, "hash": str}
WHAT = "privacy ledger"


class Spent(Refusal):
    """A site has no privacy budget left for this: it is left out and named."""


class Entry(NamedTuple):
    """A line of the ledger."""

    level: str
    study: str
    round: int
    request: str
    steps: tuple[Step, ...]
    hash: str


class Budget:
    """The ledger at `path`; all studies together may spend an epsilon of `cap`, at `delta` (none: no bound)."""

    def __init__(self, path: Path, cap: float | None = None, *, delta: float = 1e-5, site: str = "") -> None:
        if cap is not None and not cap > 0:
            raise Refusal(f"a cap of {cap:g} allows nothing", where=f"{WHAT} {path}", remedy="choose one above 0")
        self.path, self.cap, self.delta, self.site = path, cap, delta, site

    def debit(
        self, study: str, round_number: int, steps: Iterable[Step], *, level: str = "sample", request: str = ""
    ) -> bool:
        """Charge what a round will spend, before it is done; whether it was charged now (not before).

        Raises Spent where the cap would be passed, and writes nothing then.
        """
        if level not in LEVELS:
            raise Refusal(f"there is no privacy level '{level}'", where=WHAT, remedy="choose sample or site")
        wanted = added_up(steps)
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path, os.O_RDWR | os.O_CREAT, WHAT) as file:
            if new:
                sync_folder(self.path.parent)
            torn = self._cut_torn_line(file)
            entries = list(self._read(file))
            for entry in entries:
                if (entry.level, entry.study, entry.round) == (level, study, round_number):
                    if (entry.request, entry.steps) == (request, wanted):
                        return False
                    raise Refusal(
                        f"round {round_number} of this study was charged for another request",
                        where=self._where(study),
                        remedy="ask again what was asked before, or go on with the next round",
                    )
            self._refuse_beyond(study, [*(e for e in entries if e.level == level)], wanted)
            previous = entries[-1].hash if entries else ROOT
            content = {
                "level": level,
                "study": study,
                "round": round_number,
                "request": request,
                "steps": [list(step) for step in wanted],
                "previous": previous,
            }
            line = canonical({**content, "hash": hash_after(previous, content)}) + b"\n"
            append_line(file, line)
            return bool(line) or torn

    def spent(self, delta: float | None = None, *, level: str = "sample") -> float:
        """The epsilon of everything charged so far."""
        steps = [step for entry in self.entries() if entry.level == level for step in entry.steps]
        return epsilon(steps, self.delta if delta is None else delta)

    def entries(self) -> list[Entry]:
        if not self.path.exists():
            return []
        with locked(self.path, os.O_RDONLY, WHAT) as file:
            return list(self._read(file, torn_allowed=True))

    def _refuse_beyond(self, study: str, before: list[Entry], wanted: tuple[Step, ...]) -> None:
        if self.cap is None:
            return
        whole = [*(step for entry in before for step in entry.steps), *wanted]
        # The quick bound is the larger one: where it is within the cap, the tight one is.
        if renyi_epsilon(whole, self.delta) <= self.cap:
            return
        after = epsilon(whole, self.delta)
        if after > self.cap:
            raise Spent(
                f"the privacy budget does not allow another round: epsilon would be {after:.3f}, and the cap is "
                f"{self.cap:g}",
                where=self._where(study),
                remedy="leave this site out, or let its administrator raise the cap in policy.toml",
            )

    def _where(self, study: str) -> str:
        return f"site {self.site}, study {study}" if self.site else f"{WHAT} {self.path}, study {study}"

    def _cut_torn_line(self, file: int) -> bool:
        """A line that a crash cut off was never acted upon: its debit had not returned."""
        content = os.pread(file, os.fstat(file).st_size, 0)
        whole, end, rest = content.rpartition(b"\n")
        if rest:
            os.ftruncate(file, len(whole) + len(end))
            os.fsync(file)
        return bool(rest)

    def _read(self, file: int, *, torn_allowed: bool = False) -> Iterator[Entry]:
        previous = ROOT
        with os.fdopen(os.dup(file), "rb") as lines:
            lines.seek(0)
            for number, raw in numbered_lines(lines):
                if not isinstance(raw, bytes):
                    if torn_allowed:
                        return
                    raise self._damaged(number, str(raw))
                entry = self._entry(number, raw, previous)
                previous = entry.hash
                yield entry

    def _entry(self, number: int, raw: bytes, previous: str) -> Entry:
        try:
            words: dict[str, Any] = parsed(raw, FIELDS, {"hash": DIGEST, "previous": DIGEST})
            steps = added_up(Step(float(rate), float(noise), int(times)) for rate, noise, times in words["steps"])
        except (ValueError, TypeError, Refusal) as problem:
            raise self._damaged(number, str(problem)) from None
        content = {key: value for key, value in words.items() if key != "hash"}
        if words["previous"] != previous or words["hash"] != hash_after(previous, content):
            raise self._damaged(number, "it was changed, or lines before it were")
        return Entry(words["level"], words["study"], words["round"], words["request"], steps, words["hash"])

    def _damaged(self, number: int, why: str) -> Refusal:
        return Refusal(
            f"the privacy ledger cannot be trusted: {why}",
            where=f"{self.path}, line {number}",
            remedy="restore it from a copy; until then nothing may leave this site",
        )
