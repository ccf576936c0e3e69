"""What is told when nobody is looking: that a study waits, failed or ended, a certificate ages, a site is missing.

The words are ours and fixed; names of studies, sites and commands are all that is filled in. Why a study failed is not
among them, since the reason may speak of data: whoever gets the notice looks it up where it happened. The same is told
once (HOME/noticed.json), whatever is started again in between.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wardround.core.clock import timestamp
from wardround.core.errors import Refusal
from wardround.deploy.notices.channels import deliver
from wardround.deploy.notices.settings import EventName, NoticeSettings, read_notices
from wardround.runs.json_files import read_json, write_json

MEMORY = "noticed.json"
MOST_KEPT = 1000
SENTENCES: dict[str, tuple[str, str]] = {
    "study waits": ("{study} waits for a decision", "{who}: the study {study} waits for a decision."),
    "study failed": ("{study} failed", "{who}: the study {study} failed. The reason is shown by the command below."),
    "study ended": ("{study} {state}", "{who}: the study {study} {state}."),
    "certificate ages": (
        "the certificate of {name} ends on {until}",
        "{who}: the certificate of {name} ends on {until} and could not be renewed yet.",
    ),
    "site missing": ("{name} is missing", "{who}: {name} has not been connected for a while, and {study} needs it."),
    "revoked": ("{who} was revoked", "{who}: the coordinator says that it shut this site out."),
    "simulation ended": ("{study} ended", "{who}: `{study}` ended after {took}."),
    "simulation failed": ("{study} failed", "{who}: `{study}` failed after {took}."),
    "test": ("a test", "{who}: notices work."),
}
"""Title and text of each event."""


def words_of(event: EventName, who: str, command: str, facts: dict[str, str]) -> dict[str, Any]:
    title, text = (sentence.format(who=who, **facts) for sentence in SENTENCES[event])
    return {"event": event, "who": who, "title": title, "text": text, "command": command, "time": timestamp(), **facts}


@dataclass
class Notifier:
    """Of one home; `on_failure` hears what could not be sent. Settings are read for every notice."""

    folder: Path
    who: str
    on_failure: Callable[[str], None] = lambda why: None
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def settings(self) -> NoticeSettings | None:
        try:
            return read_notices(self.folder)
        except Refusal as refusal:
            self.on_failure(str(refusal))
            return None

    def notify(self, event: EventName, *, command: str = "", key: str = "", **facts: str) -> threading.Thread | None:
        """Send a notice in the background, once for each `key`; gives the thread, or none where nothing is sent."""
        settings = self.settings()
        if settings is None or event not in settings.events or not self._is_first(event, key or repr(facts)):
            return None
        words = words_of(event, self.who, command, facts)

        def work() -> None:
            for why in deliver(settings, words):
                self.on_failure(f"a notice could not be sent by {why}")

        thread = threading.Thread(target=work, name="wardround notice", daemon=True)
        thread.start()
        return thread

    def _is_first(self, event: str, key: str) -> bool:
        path, name = self.folder / MEMORY, f"{event} {key}"
        with self._guard, suppress(OSError, Refusal):
            known = read_json(path, "delete it") if path.exists() else {}
            if name in known:
                return False
            kept = dict(list(known.items())[-MOST_KEPT:])
            write_json(path, {**kept, name: timestamp()}, wait=False)
        return True

    def forget(self, event: EventName, key: str) -> None:
        """What has changed may be told again."""
        path, name = self.folder / MEMORY, f"{event} {key}"
        with self._guard, suppress(OSError, Refusal):
            known = read_json(path, "delete it") if path.exists() else {}
            if name in known:
                write_json(path, {one: when for one, when in known.items() if one != name}, wait=False)
