"""What a site's own computer used for a study: kept in the study's folder there, shown to its people, told to nobody.

Processor time follows the number of patients and what is in their rows, more exactly than a deadline or the time of an
answer ever tell it, and repeated questions would average the noise away: so it stays. Studies are answered side by side
in one process, which has one clock of processor time: what passes is dealt out equally to the answers that are being
made at that moment, so that all studies together have used what the process did. Joules are dealt out in the same way
where the system lets them be read (RAPL); elsewhere energy is processor time by watts, as in the energy meter.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from wardround.core.contracts import Report, RoundRecord
from wardround.core.errors import Refusal
from wardround.deploy.home import SiteSettings
from wardround.engine import registry
from wardround.engine.machine.power import joule_counter
from wardround.runs.json_files import read_json, write_json

FILE = "energy.json"


@dataclass
class Used:
    """By one answer, or by all of a study."""

    processor_seconds: float = 0.0
    joules: float = 0.0


class ProcessorShares:
    """Deals out this process's time, and the processor's joules, to the answers that are made at the moment."""

    def __init__(
        self,
        seconds: Callable[[], float] = time.process_time,
        joules: Callable[[], float] | None = None,
    ) -> None:
        self._seconds, self._joules = seconds, joules or joule_counter()
        self._lock, self._last = threading.Lock(), 0.0
        self._open: list[Used] = []

    @contextmanager
    def charged_to(self, folder: Path) -> Iterator[None]:
        """Add what is used meanwhile to the study of a folder. A file that cannot be written keeps no answer back."""
        own = Used()
        with self._lock:
            self._deal_out()
            self._open.append(own)
        try:
            yield
        finally:
            with self._lock:
                self._deal_out()
                self._open = [one for one in self._open if one is not own]
            with suppress(Refusal, OSError):
                add_used(folder, own, measured=self._joules is not None)

    def _deal_out(self) -> None:
        now = self._seconds()
        joules = 0.0 if self._joules is None else self._joules()
        for one in self._open:
            one.processor_seconds += (now - self._last) / len(self._open)
            one.joules += joules / len(self._open)
        self._last = now


def add_used(folder: Path, used: Used, *, measured: bool) -> None:
    """A study whose answers were not all measured in joules has none: half a sum would pass for the whole."""
    before = read_used(folder)
    joules = before["joules"] if before["answers"] else 0.0
    total = {
        "answers": before["answers"] + 1,
        "processor_seconds": before["processor_seconds"] + used.processor_seconds,
        "joules": joules + used.joules if measured and joules is not None else None,
    }
    write_json(folder / FILE, total, wait=False)


def read_used(folder: Path) -> Report:
    """Answers that were made, processor time, and joules or none."""
    nothing = {"answers": 0, "processor_seconds": 0.0, "joules": None}
    try:
        return {**nothing, **read_json(folder / FILE, "it begins anew")}
    except Refusal:
        return nothing


def own_energy(folder: Path, settings: SiteSettings) -> Report | None:
    """Electricity and CO2 of this site's computer for a study, by the site's own factors; none where it did nothing."""
    used = read_used(folder)
    if not used["answers"]:
        return None
    meter = registry.find("meter", "energy").build(
        watts_per_core=settings.watts_per_core, grams_per_kwh=settings.grams_per_kwh, computing="site"
    )
    seconds, joules = used["processor_seconds"], used["joules"]
    record = RoundRecord(
        round=0,
        sites=(),
        count=used["answers"],
        rows=0,
        seconds=0.0,
        cpu_seconds=seconds,
        bytes_down=0,
        bytes_up=0,
        measures={} if joules is None else {"joules": joules},
    )
    return {**meter.report(meter.observe(meter.init(), record)), "processor_seconds": seconds}
