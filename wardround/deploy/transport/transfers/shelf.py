"""What a party has received so far and what waits to be fetched: transfers that go on where they broke.

A transfer that takes long is written to a folder as it comes, so that it goes on after a restart, too; a quick one
stays in memory. Bytes that were on the disk are compared with their names before they are used.
"""

import json
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wardround.core.files import BINARY, write_at
from wardround.deploy.protocol.compression import Content, is_worth, pack
from wardround.deploy.protocol.outline import SMALLEST_NAMED, Range, ReadOutline, Segment, name_of, without
from wardround.deploy.protocol.wire import LARGEST_MESSAGE, Malformed

LONG = 5.0
"""Seconds from which on a transfer is written to the disk."""
KEPT = 64 << 20
"""Bytes of segments kept in memory; one model is kept in any case."""
KEPT_ON_DISK = 1 << 30
SMALLEST_ON_DISK = 1 << 14
MOST_TRANSFERS = 8
"""Messages that are received at the same time."""
MEMORY_SHARE = 0.25
"""Of the machine's memory, for messages that are received."""
ABANDONED = 7 * 86400.0
"""Seconds after which a broken transfer on the disk is forgotten."""
MOST_ANSWERS = 3
"""Answers that wait to be fetched."""


class IncomingMessage:
    """A message on its way to us: a buffer of its size, and which ranges of it are missing.

    With a `path` what comes is written there when the transfer takes long; what lies there from before is taken up.
    """

    def __init__(self, segments: tuple[Segment, ...], path: Path | None) -> None:
        self.segments, self._path = segments, path
        self.size = segments[-1].end
        # NumPy's zeros take memory as they are written: a size that is only claimed costs nothing.
        self.buffer = np.zeros(self.size, np.uint8).data
        self.gaps: list[Range] = [(0, self.size)] if self.size else []
        self.began = self.touched = time.monotonic()
        self._file: int | None = None
        self._from_disk = False
        self.is_long = False
        """Whether any of it was written to the disk."""
        self._copies: list[tuple[Segment, Segment]] = []
        self._lock = threading.Lock()
        if path is not None and path.exists():
            self._take_up(path)

    def take(self, begin: int, content: Content) -> bool:
        """Put bytes where they belong; whether they belong anywhere. What is there stays as it came first."""
        end = begin + len(content)
        if begin < 0 or end > self.size:
            return False
        with self._lock:
            gaps = without(self.gaps, begin, end)
            if gaps == self.gaps:
                return True
            self.buffer[begin:end] = content
            self.gaps = gaps
            self.touched = time.monotonic()
            if self._path is not None and self.touched - self.began > LONG:
                with suppress(OSError):  # a full disk: it goes on in memory
                    self._write(begin, end)
        return True

    def fill(self, known: "KnownSegments") -> None:
        """Copy what is known already; what occurs twice in the message travels once."""
        first: dict[bytes, Segment] = {}
        for one in self.segments:
            content = known.get(one.name) if one.end - one.begin >= SMALLEST_NAMED else None
            if content is not None and len(content) == one.end - one.begin:
                self.buffer[one.begin : one.end] = content
                self.gaps = without(self.gaps, one.begin, one.end)
            elif one.name in first:
                self._copies.append((first[one.name], one))
                self.gaps = without(self.gaps, one.begin, one.end)
            else:
                first[one.name] = one

    def complete(self) -> list[Range]:
        """Put the last bytes in their places if all have come; gives what is missing still."""
        with self._lock:
            if self.gaps:
                return list(self.gaps)
            for source, target in self._copies:
                self.buffer[target.begin : target.end] = self.buffer[source.begin : source.end]
            if self._from_disk:
                self._verify()
            return list(self.gaps)

    def _verify(self) -> None:
        """What was on the disk and is not what its name says is missing again."""
        self.gaps = [(begin, end) for name, begin, end in self.segments if name_of(self.buffer[begin:end]) != name]
        self._from_disk = bool(self.gaps)

    def close(self) -> None:
        """What is on the disk stays there."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def forget(self) -> None:
        self.close()
        if self._path is not None:
            for path in (self._path, ranges_path(self._path)):
                path.unlink(missing_ok=True)

    def _write(self, begin: int, end: int) -> None:
        assert self._path is not None
        self.is_long = True
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | BINARY, 0o600)
            done = [(0, self.size)]
            for first, last in self.gaps:
                done = without(done, first, last)
        else:
            done = [(begin, end)]
        for first, last in done:
            write_at(self._file, self.buffer[first:last], first)
        words = "".join(f"{json.dumps(one)}\n" for one in done)
        with open(ranges_path(self._path), "a", encoding="utf-8") as file:
            file.write(words)

    def _take_up(self, path: Path) -> None:
        with suppress(OSError, ValueError, TypeError):
            lines = ranges_path(path).read_text(encoding="utf-8").split("\n")[:-1]
            done = [(int(begin), int(end)) for begin, end in map(json.loads, lines)]
            content = path.read_bytes()
            for begin, end in done:
                if 0 <= begin <= end <= min(self.size, len(content)):
                    self.buffer[begin:end] = content[begin:end]
                    self.gaps = without(self.gaps, begin, end)
                    self._from_disk = self.is_long = True


def ranges_path(path: Path) -> Path:
    """Beside what was received: which ranges of it."""
    return path.with_name(f"{path.name}.ranges")


class KnownSegments:
    """Segments of the last messages by name: in memory, and on the disk where a line is so slow that it pays."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, name: bytes) -> bool:
        return name in self._kept or (self._folder is not None and (self._folder / name.hex()).exists())

    def get(self, name: bytes) -> bytes | None:
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        if self._folder is None:
            return None
        path = self._folder / name.hex()
        with suppress(OSError):
            content = path.read_bytes()
            if name_of(content) == name:
                self._keep({name: content})
                return content
            path.unlink()
        return None

    def learn(self, segments: tuple[Segment, ...], content: Content, *, long: bool = False) -> None:
        """Keep the segments of a message; on the disk, too, if it took long to come."""
        view = memoryview(content)
        worth = {one.name: one for one in segments[1:] if one.end - one.begin >= SMALLEST_NAMED}
        self._keep({name: self._kept.get(name) or bytes(view[one.begin : one.end]) for name, one in worth.items()})
        if long and self._folder is not None:
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                for name, one in worth.items():
                    write_once(self._folder / name.hex(), view[one.begin : one.end])
                forget_old_files(self._folder)

    def _keep(self, found: dict[bytes, bytes]) -> None:
        with self._lock:
            for name, content in found.items():
                self._kept[name] = content
                self._kept.move_to_end(name)
            total, own = sum(map(len, self._kept.values())), sum(map(len, found.values()))
            while total > max(KEPT, own):
                total -= len(self._kept.popitem(last=False)[1])


def write_once(path: Path, content: Content) -> None:
    if not path.exists():
        with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(content)


def forget_old_files(folder: Path) -> None:
    """Keep no more than so many bytes of segments, the last ones."""
    found = sorted(((one.stat().st_mtime_ns, one) for one in folder.iterdir() if one.is_file()), reverse=True)
    total = 0
    for _, path in found:
        total += path.stat().st_size
        if total > KEPT_ON_DISK:
            path.unlink(missing_ok=True)


def forget_abandoned(folder: Path) -> None:
    """Transfers that nobody went on with for days, and of the others all but the last few of each party."""
    kept: Counter[str] = Counter()
    with suppress(OSError):
        for touched, path in sorted(((one.stat().st_mtime, one) for one in folder.glob("*.part")), reverse=True):
            party = path.name.rpartition("-")[0]
            kept[party] += 1
            if kept[party] > MOST_TRANSFERS or time.time() - touched > ABANDONED:
                for one in (path, ranges_path(path)):
                    one.unlink(missing_ok=True)


def memory_room() -> int:
    """Bytes that messages on their way may take together: few bytes can name one segment often enough for many more."""
    import psutil

    return min(LARGEST_MESSAGE, int(MEMORY_SHARE * psutil.virtual_memory().total))


class WaitingAnswer(NamedTuple):
    """An answer that is fetched in parts; `lasts` tells before each part whether it may still leave."""

    content: Content
    lasts: Callable[[], bool]
    shrinks: bool
    """Whether its parts are packed."""


class Shelf:
    """Of one party that is asked: what it receives, what it knows, and answers that wait to be fetched."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder, self._room = folder, memory_room()
        if folder is not None and folder.is_dir():
            forget_abandoned(folder)
        self.known = KnownSegments(None if folder is None else folder / "known")
        self._coming: OrderedDict[bytes, IncomingMessage] = OrderedDict()
        self._waiting: OrderedDict[bytes, WaitingAnswer] = OrderedDict()
        self._lock = threading.Lock()

    def expect(self, outline: ReadOutline) -> list[Range]:
        """Get ready for a message; gives the ranges of it that are to be sent."""
        return list(self._coming_for(outline).gaps)

    def take(self, name: bytes, begin: int, content: Content) -> bool:
        """A part of a message that was expected; whether it was."""
        coming = self._coming.get(name)
        return coming is not None and coming.take(begin, content)

    def put_together(self, outline: ReadOutline) -> memoryview | list[Range]:
        """The whole message, read-only; or the ranges that are missing still."""
        coming = self._coming_for(outline)
        for name, begin, _ in outline.segments:
            if name in outline.inline:
                coming.take(begin, outline.inline[name])
        gaps = coming.complete()
        if gaps:
            return gaps
        with self._lock:
            self._coming.pop(outline.name, None)
        self.known.learn(outline.segments, coming.buffer, long=coming.is_long)
        coming.forget()
        return coming.buffer.toreadonly()

    def _coming_for(self, outline: ReadOutline) -> IncomingMessage:
        name = outline.name
        if outline.size > self._room:
            raise Malformed(f"the message has {outline.size} bytes, and there is room for {self._room} here")
        with self._lock:
            coming = self._coming.get(name)
            if coming is None:
                others = sum(one.size for one in self._coming.values())
                while self._coming and (others + outline.size > self._room or len(self._coming) >= MOST_TRANSFERS):
                    oldest = self._coming.popitem(last=False)[1]
                    others -= oldest.size
                    oldest.forget()
                on_disk = self._folder is not None and outline.size > SMALLEST_ON_DISK
                path = self._folder / f"{name.hex()}.part" if self._folder is not None and on_disk else None
                coming = self._coming[name] = IncomingMessage(outline.segments, path)
                coming.fill(self.known)
            self._coming.move_to_end(name)
            return coming

    # ---- answers ----

    def hold(self, content: Content, lasts: Callable[[], bool]) -> bytes:
        """Let an answer be fetched; gives its name."""
        name = name_of(content)
        with self._lock:
            self._waiting[name] = WaitingAnswer(content, lasts, is_worth(content))
            self._waiting.move_to_end(name)
            while len(self._waiting) > MOST_ANSWERS:
                self._waiting.popitem(last=False)
        return name

    def fetch(self, name: bytes, begin: int, end: int) -> Content | None:
        """A part of an answer that waits, as it travels; none where there is none, or none that may still leave."""
        waiting = self._waiting.get(name)
        if waiting is None:
            return None
        if not waiting.lasts():
            with self._lock:
                self._waiting.pop(name, None)
            return None
        view = memoryview(waiting.content)
        if not 0 <= begin <= end <= view.nbytes:
            return None
        return pack(view[begin:end]) if waiting.shrinks else view[begin:end]
