"""Points at which a process may be made to die, so that tests can show what every crash costs: nothing.

Nothing happens unless the environment says WARDROUND_CRASH_AT=NAME, or NAME:3 to die when it is passed the third time.
"""

import os
import sys
from typing import Any

from wardround.runs.file_names import MODEL, RESULT

ASKED = "WARDROUND_CRASH_AT"
PASSED = (
    "site.request.received",
    "site.kept.before_save",
    "site.kept.saved",
    "site.reply.before_save",
    "site.reply.saved",
    "site.audit.written",
    "site.reply.ready",
    "coordinator.offer.approved",
    "coordinator.agreement.before_save",
    "coordinator.agreement.saved",
    "coordinator.round.before_asking",
    "coordinator.round.one_answered",
    "coordinator.round.all_answered",
    "coordinator.round.concluded",
    "coordinator.round.recorded",
    "coordinator.checkpoint.saved",
    "coordinator.result.before_save",
    "coordinator.result.saved",
    "coordinator.study.ended",
)
"""Places in the code that call `point`."""
SUMMED = ("site.mask.recorded", "site.reveal.recorded", "coordinator.sum.saved", "coordinator.sum.opened")
"""The same for a round of which only the sum is opened."""
PAIRED = ("site.halves.kept", "second.sum.closed", "coordinator.halves.saved", "coordinator.halves.opened")
"""The same for a round for two servers."""
CHARGED = ("site.budget.charged",)
"""The same for a round that costs privacy: the ledger is debited, and nothing is computed yet."""
PARTIAL = {
    "site.kept.partial": "kept/",
    "site.reply.partial": "replies/",
    "site.model.partial": f"/{MODEL}",
    "coordinator.agreement.partial": "/agreement.json",
    "coordinator.checkpoint.partial": "checkpoints/",
    "coordinator.model.partial": f"/{MODEL}",
    "coordinator.result.partial": f"/{RESULT}",
    "coordinator.state.partial": "/state.json",
}
"""In the midst of a save: all is written under another name, and the file has not got its own yet."""
POINTS = (*PASSED, *PARTIAL)
_passed: dict[str, int] = {}


def point(name: str) -> None:
    """Die here, without any farewell, if the environment asks for it."""
    wanted, _, count = os.environ.get(ASKED, "").partition(":")
    if wanted != name:
        return
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] == int(count or 1):
        os._exit(137)


def arm() -> None:
    """Listen for files getting their names, if one of the points in the midst of a save is asked for."""
    wanted = os.environ.get(ASKED, "").partition(":")[0]
    if wanted not in PARTIAL:
        return

    def hear(event: str, words: tuple[Any, ...]) -> None:
        if event == "os.rename" and str(words[0]).endswith(".partial") and PARTIAL[wanted] in str(words[1]):
            point(wanted)

    sys.addaudithook(hear)
