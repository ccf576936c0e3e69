"""Files that a crash cannot leave half-written: replaced whole, or longer by a whole line, then on the disk."""

import os
import threading
from pathlib import Path


def write_whole(path: Path, content: bytes, *, wait: bool = True) -> None:
    """Replace a file so that a reader, or a crash, sees the old content or the new, never a part.

    Without `wait` that holds for the death of a process only: a power cut may leave anything there, or nothing. It is
    for what can be made again and can be told from garbage.
    """
    # A name of its own for every thread: two that write the same file must not take each other's away.
    partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            if wait:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    if wait:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, not only what the files hold."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def stamp(status: os.stat_result) -> tuple[int, int, int, int]:
    """What changes with a file: whoever writes, replaces or restores it cannot keep all four."""
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def append_line(file: int, line: bytes) -> None:
    """Add a line (or several) to an open file and wait for the disk; what could not be written whole is taken back.

    A crash in between can still leave a torn last line, which has no newline: a reader can tell.
    """
    size = os.fstat(file).st_size
    try:
        written = 0
        while written < len(line):
            written += os.pwrite(file, line[written:], size + written)
        os.fsync(file)
    except OSError:
        os.ftruncate(file, size)
        raise
