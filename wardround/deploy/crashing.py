"""Points at which a process may be made to die, so that tests can show what every crash costs: nothing.

Nothing happens unless the environment says WARDROUND_CRASH_AT=NAME, or NAME:3 to die when it is passed the third time.
"""

import os

POINTS = (
    "site.request.received",
    "site.kept.before_save",
    "site.kept.saved",
    "site.reply.before_save",
    "site.reply.saved",
    "site.audit.written",
    "coordinator.round.before_asking",
    "coordinator.round.one_answered",
    "coordinator.round.all_answered",
    "coordinator.round.concluded",
    "coordinator.round.recorded",
    "coordinator.checkpoint.partial",
    "coordinator.checkpoint.saved",
    "coordinator.result.before_save",
)
_passed: dict[str, int] = {}


def point(name: str) -> None:
    """Die here, without any farewell, if the environment asks for it."""
    wanted, _, count = os.environ.get("WARDROUND_CRASH_AT", "").partition(":")
    if wanted != name:
        return
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] == int(count or 1):
        os._exit(137)
