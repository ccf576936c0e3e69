"""What a long-lived process says: lines for a person, or JSON lines for a program; to the terminal or into a file.

A file is rotated: it never grows beyond ten megabytes, and five older ones stay.
"""

import json
import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Literal

from wardround.core.clock import timestamp
from wardround.core.errors import Refusal
from wardround.core.text import plain_line

LARGEST_FILE, OLDER_FILES = 10_000_000, 5
LogFormat = Literal["text", "json"]


class EventLog:
    """Nobody's screen or file, full or closed, may stop the work: what cannot be written is let go."""

    def __init__(self, form: LogFormat = "text", file: Path | None = None, party: str = "") -> None:
        self.form, self.party = form, party
        if file is None:
            self._handler: logging.Handler = logging.StreamHandler(sys.stderr)
        else:
            try:
                self._handler = RotatingFileHandler(
                    file, maxBytes=LARGEST_FILE, backupCount=OLDER_FILES, encoding="utf-8"
                )
            except OSError as error:
                raise Refusal(
                    f"the log cannot be written: {error.strerror}", where=str(file), remedy="choose another --log-file"
                ) from None
        self._handler.setFormatter(logging.Formatter("%(message)s"))
        self._handler.handleError = lambda record: None  # type: ignore[method-assign]
        self._dated = file is not None

    def write(self, sentence: str, event: str, facts: Mapping[str, Any] | None = None) -> None:
        """One thing that happened: in words, and for a program by its name with the facts."""
        words = plain_line(sentence)
        if self.form == "json":
            own = {"time": timestamp("seconds"), "party": self.party, "event": event, "words": words}
            words = json.dumps({**own, **plain_facts(facts or {})}, ensure_ascii=False, default=str)
        else:
            words = f"{timestamp('seconds') if self._dated else time.strftime('%H:%M:%S')} {words}"
        self._handler.handle(logging.makeLogRecord({"msg": "%s", "args": (words,)}))  # one line at a time

    def close(self) -> None:
        self._handler.close()

    def take_warnings(self) -> None:
        """Let what our own modules warn of be written here, too."""
        own = self

        class WarningHandler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                own.write(record.getMessage(), "warning", {"level": record.levelname.lower()})

        logger = logging.getLogger("wardround")
        logger.addHandler(WarningHandler())
        logger.propagate = False


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts as JSON may hold them, with nothing in them that drives a terminal."""
    return {str(key): plain_fact(value) for key, value in facts.items()}


def plain_fact(value: Any) -> Any:
    if isinstance(value, str):
        return plain_line(value)
    if isinstance(value, Mapping):
        return plain_facts(value)
    if isinstance(value, list | tuple):
        return [plain_fact(one) for one in value]
    return value


def facts_of(event: Any) -> dict[str, Any]:
    """An event of the coordinator as a program reads it."""
    return asdict(event) if is_dataclass(event) and not isinstance(event, type) else {}
