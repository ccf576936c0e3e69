"""Notices on the command line: a test, and the end of a long simulation.

Imports are inside the functions, so that help loads nothing heavy.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from wardround.cli.output import ago, say
from wardround.core.errors import Refusal

NOTICES = "WARDROUND_NOTICES"
"""The environment variable that names a notices.toml for simulations."""
LONG = ("run", "compare", "tune", "partners", "explain", "attack", "retrain")
"""Commands that may take hours."""


def send_test(folder: Path, who: str, *, as_json: bool) -> None:
    """Send a test notice every way that is set; refused where one does not work."""
    from wardround.deploy.notices.channels import deliver
    from wardround.deploy.notices.notice import words_of
    from wardround.deploy.notices.settings import FILE, read_notices

    settings = read_notices(folder)
    if settings is None:
        raise Refusal(
            f"there is no {FILE}, so no notices are sent", where=str(folder), remedy="see docs/how-to/notices.md"
        )
    ways = [name for name in ("email", "webhook", "command") if getattr(settings, name) is not None]
    wrong = deliver(settings, words_of("test", who, "", {}))
    if wrong or not ways:
        what = "; ".join(wrong) or "no way to send notices is set ([email], [webhook] or [command])"
        raise Refusal(what, where=str(folder / FILE), remedy="correct it, and test again")
    lines = [f"A test notice was sent by {' and '.join(ways)}. Events: {', '.join(settings.events)}."]
    say({"sent": ways, "events": list(settings.events)}, lines, as_json)


@contextmanager
def told_when_over(given: Sequence[str]) -> Iterator[None]:
    """Tell of the end of a long simulation, where WARDROUND_NOTICES names a file; never changes how it ends."""
    path = os.environ.get(NOTICES)
    if not path or not given or given[0] not in LONG:
        yield
        return
    began, failed = time.monotonic(), True
    try:
        yield
        failed = False
    finally:
        tell_end(Path(path), " ".join(("wardround", *given[:2])), time.monotonic() - began, failed=failed)


def tell_end(path: Path, command: str, seconds: float, *, failed: bool) -> None:
    from wardround.deploy.notices.channels import deliver
    from wardround.deploy.notices.notice import words_of
    from wardround.deploy.notices.settings import EventName, read_notice_file

    try:
        settings = read_notice_file(path)
        event: EventName = "simulation failed" if failed else "simulation ended"
        wrong = []
        if event in settings.events and seconds >= settings.longer_than:
            wrong = deliver(settings, words_of(event, "this machine", "", {"study": command, "took": ago(seconds)}))
    except Refusal as refusal:
        wrong = [str(refusal)]
    for why in wrong:
        typer.echo(f"wardround: a notice could not be sent: {why}", err=True)
