"""The long-lived processes on the command line: started in the foreground, stopped by Ctrl-C or SIGTERM."""

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

ERRORS = Console(stderr=True)


def start_site(home: Path) -> None:
    """`site start`: answer the coordinator until stopped."""
    from wardround.deploy.homes import SiteHome
    from wardround.deploy.serving import SiteService

    service = SiteService(SiteHome(home), site_words)
    service.start()
    ERRORS.print(f"{service.state['name']} connects to {service.state['coordinator']}. Ctrl-C stops it.", markup=False)
    stop_on_signal(service.stopped)
    service.work()
    service.stop()
    leave()


def stop_on_signal(stopped: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())


def leave() -> None:
    """End the process: the network library's threads would keep it alive; all that matters is on the disk."""
    ERRORS.file.flush()
    os._exit(0)


def site_words(word: str, facts: Mapping[str, Any]) -> None:
    told = {
        "connected": "connected to the coordinator at {coordinator}",
        "lost": "lost the coordinator at {coordinator}; waiting for it to come back",
        "worried": "not connected to the coordinator: {why}",
        "answered": "answered {topic}: {bytes} bytes left (see wardround site log)",
    }
    if word in told and facts.get("topic") not in ("hello", "offer"):
        ERRORS.print(f"{time.strftime('%H:%M:%S')} {told[word].format(**facts)}", markup=False, highlight=False)
