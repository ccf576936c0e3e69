"""One writer for a run folder: a lock of the operating system, which goes with the process that holds it.

Nothing is written for it, so a crash leaves nothing behind. Readers, such as `wardround report`, need no lock.
"""

import os
from pathlib import Path
from weakref import WeakValueDictionary, finalize

from wardround.core.errors import Refusal
from wardround.core.files import lock_file, open_for_lock


class FolderLock:
    """Held as long as somebody in this process refers to it."""

    def __init__(self, path: Path) -> None:
        self._file = open_for_lock(path)
        finalize(self, os.close, self._file)
        try:
            lock_file(self._file, wait=False)
        except BlockingIOError:
            raise Refusal(
                "another process is writing into this run folder",
                where=str(path),
                remedy="wait until it has finished or stop it, or choose another folder with --out",
            ) from None
        except OSError:
            pass  # a file system without locks: better to go on than to refuse every run there


_HELD: "WeakValueDictionary[str, FolderLock]" = WeakValueDictionary()


def lock_folder(path: Path) -> FolderLock:
    """The folder's lock, shared within this process; refused while another process holds it."""
    key = str(path.resolve())
    found = _HELD.get(key)
    if found is None:
        found = _HELD[key] = FolderLock(path)
    return found
