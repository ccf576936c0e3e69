"""Files that a crash cannot leave half-written: replaced whole, or longer by a whole line, then on the disk; and locks.

What differs between POSIX systems and Windows is here, and nowhere else.
"""

import errno
import os
import sys
import threading
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    BINARY, HAS_MODES = os.O_BINARY, False
    """For `os.open`: bytes as they are; and whether a file's mode says who may read it."""
    LOCKED_BYTE = (1 << 31) - 2
    """Past the end of any file of ours, since nobody else could read a byte that is locked."""

    def lock_file(file: int, *, shared: bool = False, wait: bool = True) -> None:
        """Lock an open file until it is closed; an OSError where another process holds it and nobody waits."""
        while True:
            os.lseek(file, LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
                return
            except OSError as error:
                if not wait:
                    raise BlockingIOError(*error.args) from None
                if error.errno != errno.EDEADLK:  # which says that it gave up after ten seconds
                    raise

    def read_at(file: int, size: int, place: int) -> bytes:
        os.lseek(file, place, os.SEEK_SET)
        return os.read(file, size)

    def write_at(file: int, content: bytes | memoryview, place: int) -> int:
        os.lseek(file, place, os.SEEK_SET)
        return os.write(file, content)

    def open_for_lock(folder: Path) -> int:
        """Something of a folder that can be locked: folders cannot be opened."""
        return os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)

    def sync_folder(path: Path) -> None:
        """Nothing to wait for: names are written with their files."""

else:
    import fcntl

    BINARY, HAS_MODES = 0, True
    """For `os.open`: bytes as they are; and whether a file's mode says who may read it."""

    def lock_file(file: int, *, shared: bool = False, wait: bool = True) -> None:
        """Lock an open file until it is closed; an OSError where another process holds it and nobody waits."""
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))

    def read_at(file: int, size: int, place: int) -> bytes:
        return os.pread(file, size, place)

    def write_at(file: int, content: bytes | memoryview, place: int) -> int:
        return os.pwrite(file, content, place)

    def open_for_lock(folder: Path) -> int:
        """Something of a folder that can be locked: the folder itself, so that nothing is written for it."""
        return os.open(folder, os.O_RDONLY)

    def sync_folder(path: Path) -> None:
        """Wait until the names in a folder are on the disk, not only what the files hold."""
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


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
            written += write_at(file, line[written:], size + written)
        os.fsync(file)
    except OSError:
        os.ftruncate(file, size)
        raise
