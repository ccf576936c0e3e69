"""A fault that nobody foresaw, as a developer needs it: in a file of the home, in lines that drive no terminal."""

import os
import traceback
from contextlib import suppress
from pathlib import Path

from wardround import __version__
from wardround.core.clock import timestamp
from wardround.core.text import LONGEST, plain_line

LARGEST_LOG = 1 << 20
"""Bytes of the record of faults, after which a new one is begun."""


def record_fault(home: Path, what: str, error: BaseException) -> Path:
    """Append a fault; gives the file. One that cannot be written is let go."""
    path = home / "faults.log"
    lines = "".join(traceback.format_exception(error)).splitlines()
    shown = [line[: len(line) - len(line.lstrip())] + plain_line(line, LONGEST) for line in lines]
    with suppress(OSError):
        if path.exists() and path.stat().st_size > LARGEST_LOG:
            path.replace(path.with_suffix(".log.1"))
        with open(path, "a", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as log:
            log.write("\n".join([f"{timestamp('seconds')} {what} (wardround {__version__})", *shown, "", ""]))
    return path
