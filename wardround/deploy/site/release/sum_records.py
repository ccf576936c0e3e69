"""What a site has done in the secure sums of a study, on its disk before anything leaves that depends on it.

Of every round: which answer was made (one, whatever else is asked), in which attempts it was masked, and which opening
the site helped with (one, kept word by word, so that it can be said again after a crash and in no other words). Of
every attempt: its nonce, which is never used again.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from wardround.core.errors import Refusal
from wardround.core.files import sync_folder, write_whole
from wardround.privacy.secure_sum.masks import Ring

ANSWER = ".answer"


@dataclass(frozen=True)
class MaskedAttempt:
    """An attempt in which this site's masked answer may have left: it can be opened by `threshold` of its sites."""

    session: str
    roster: tuple[str, ...]
    threshold: int
    colluding: int


@dataclass(frozen=True)
class SumOpening:
    """The one attempt that this site helped to open: what it was asked (as a hash), and what it said."""

    session: str
    survivors: tuple[str, ...]
    asked: str
    letter: Mapping[str, Any]


@dataclass(frozen=True)
class RoundSums:
    """One round: what its answer follows from (as a hash), its model, the attempts and the opening."""

    request: str = ""
    model: str = ""
    attempts: tuple[MaskedAttempt, ...] = ()
    opening: SumOpening | None = None


class SumRecords:
    """Of one study at one site; only one process writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "sums"
        self._rounds: dict[int, RoundSums] | None = None

    @property
    def rounds(self) -> dict[int, RoundSums]:
        if self._rounds is None:
            paths = self.folder.glob("*.json") if self.folder.is_dir() else ()
            self._rounds = {int(path.stem): read_record(path) for path in paths}
        return self._rounds

    def of(self, number: int) -> RoundSums:
        return self.rounds.get(number, RoundSums())

    def use_nonce(self, nonce: str) -> None:
        """Refuse a nonce that was used before; returns when it is on the disk that this one was."""
        folder = self.folder / "nonces"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            os.close(os.open(folder / sha256(nonce.encode()).hexdigest(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise Refusal(
                "the nonce of this attempt was used before: a second attempt under the same name could be opened in "
                "place of the first",
                where="secure sum",
                remedy="start the round again, with a new nonce",
            ) from None
        sync_folder(folder)

    def masked(self, number: int, request: str, model: str, attempt: MaskedAttempt) -> None:
        """An answer is about to leave under masks."""
        before = self.of(number)
        self._write(number, replace(before, request=request, model=model, attempts=(*before.attempts, attempt)))

    def close(self, number: int, opening: SumOpening) -> None:
        """A sum is about to be opened: of this round no other one ever is."""
        assert self.of(number).opening is None, "a round is opened once"
        self._write(number, replace(self.of(number), opening=opening))
        self._answer(number).unlink(missing_ok=True)

    def _write(self, number: int, record: RoundSums) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / f"{number:08d}.json", json.dumps(asdict(record)).encode())
        self.rounds[number] = record

    # ---- an answer with noise, which cannot be made again ----

    def _answer(self, number: int) -> Path:
        return self.folder / f"{number:08d}{ANSWER}"

    def keep_answer(self, number: int, request: str, vector: Ring) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        content = np.ascontiguousarray(vector, "<u8").tobytes()
        write_whole(self._answer(number), bytes.fromhex(request) + sha256(content).digest() + content)

    def kept_answer(self, number: int, request: str) -> Ring | None:
        """The answer that was made for this request; none where none was, or its file is damaged."""
        path = self._answer(number)
        content = path.read_bytes() if path.exists() else b""
        if content[:32].hex() != request or sha256(content[64:]).digest() != content[32:64]:
            return None
        return np.frombuffer(content[64:], "<u8")


def read_record(path: Path) -> RoundSums:
    try:
        words = json.loads(path.read_bytes())
        attempts = tuple(MaskedAttempt(**{**one, "roster": tuple(one["roster"])}) for one in words.pop("attempts"))
        said = words.pop("opening")
        opening = None if said is None else SumOpening(**{**said, "survivors": tuple(said["survivors"])})
        return RoundSums(**words, attempts=attempts, opening=opening)
    except (ValueError, TypeError, KeyError) as error:
        raise Refusal(
            f"the record of a secure sum cannot be read ({type(error).__name__}); without it a round might be opened "
            "twice",
            where=str(path),
            remedy="restore the file from a backup, or leave the study",
        ) from None
