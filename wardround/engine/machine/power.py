"""Energy that this machine's processors used, where the kernel tells it (Intel's and AMD's RAPL counters).

Read from /sys/class/powercap, in microjoules since some moment; many systems let only the administrator read it. What a
counter tells is the whole processor's: other programs' work is in it.
"""

from collections.abc import Callable
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


def joule_counter(folder: Path = POWERCAP) -> Callable[[], float] | None:
    """A function that tells the joules used since it was called before; none where they cannot be read."""
    packages = sorted(path for path in folder.glob("*-rapl:*") if path.name.count(":") == 1)
    before = {path: reading(path / "energy_uj") for path in packages}
    if not packages or None in before.values():
        return None

    def used() -> float:
        total = 0
        for path in packages:
            now, then = reading(path / "energy_uj"), before[path]
            if now is None or then is None:
                continue
            # The counter begins again at 0 when it is full.
            total += now - then if now >= then else now - then + (reading(path / "max_energy_range_uj") or 0)
            before[path] = now
        return total / 1e6

    return used


def reading(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
