"""Numbers planted in one site's answers: under a secure sum they are nowhere at the coordinator, without it they are.

Real processes over mutual TLS. The coordinator is made to stand still in the moments in which it holds most, and all of
its memory is searched; then everything it wrote, logs included.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.processes import parties
from tests.support.processes.party import canary
from wardround.privacy.secure_sum.fixed_point import digits_of
from wardround.study.file import Named

pytest.importorskip("nvflare")
COORDINATOR, SEED = parties.COORDINATOR, 5
PIECE = 1 << 20
MASKED = ("coordinator.sum.saved", "coordinator.sum.opened")
PLAIN = ("coordinator.round.all_answered",)


def patterns() -> dict[str, bytes]:
    """The canary in every form in which it could be held: four of its numbers in a row are enough."""
    values = canary(SEED)
    whole = np.rint(values.astype(np.float64) * 2**20).astype(np.int64)
    digits = np.asarray(digits_of(values, 20))
    forms = {"float32": values, "float64": values.astype(np.float64), "fixed": whole, "digits": digits[0]}
    return {name: np.ascontiguousarray(form[2:6]).tobytes() for name, form in forms.items()}


def found_in(content: bytes) -> set[str]:
    return {name for name, pattern in patterns().items() if pattern in content}


def found_in_memory(pid: int) -> set[str]:
    """Every page that the process may write, a piece at a time, each with the end of the one before."""
    found: set[str] = set()
    read = 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            place, rights = line.split()[:2]
            if not rights.startswith("rw"):
                continue
            begin, end = (int(part, 16) for part in place.split("-"))
            rest = b""
            for at in range(begin, end, PIECE):
                try:
                    memory.seek(at)
                    piece = memory.read(min(PIECE, end - at))
                except (OSError, OverflowError, ValueError):
                    break  # a device's window, not memory
                read += len(piece)
                if np.frombuffer(piece, np.uint8).any():  # most of it was never written to
                    found |= found_in(rest + piece)
                rest = piece[-64:]
    assert read > 50_000_000, "too little to be all of it"
    return found


def found_on_disk(folder: Path) -> set[str]:
    """Also as text: seven digits of any of the numbers."""
    found: set[str] = set()
    words = [f"{value:.6f}".encode() for value in canary(SEED).astype(float)]
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_socket():
            content = path.read_bytes()
            found |= {f"{name} in {path.name}" for name in found_in(content)}
            found |= {f"text in {path.name}" for word in words if word[:8] in content}
    return found


def stands_still(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with parties.consortium_in(Path(tmp_path_factory.mktemp("y"))) as made:
        made.start(COORDINATOR, halts=True)
        made.start("bo", plant=SEED)
        made.start("freetown", "kenema")
        made.connected()
        yield made


def looked_at(consortium: Any, study: Any, points: tuple[str, ...]) -> set[str]:
    """What of the canary the coordinator's memory holds at these points, one round after the other."""
    coordinator = consortium.processes[COORDINATOR]
    name, found = consortium.queue(study), set()
    for point in points:
        coordinator.crash_at(point)
        parties.until(lambda: (consortium.approve(name), stands_still(coordinator.pid))[1], 120, point)
        found |= found_in_memory(coordinator.pid)
        coordinator.signal(signal.SIGCONT)
    coordinator.crash_at("none")
    consortium.ended(name, revive=False)
    assert (consortium.run(name) / "model.safetensors").exists()
    return found


@pytest.mark.slow
def test_a_planted_answer_is_nowhere_at_the_coordinator_under_a_secure_sum(consortium: Any) -> None:
    secure = parties.study_of("hidden", 6).model_copy(update={"transforms": [Named(name="secure_sum")]})
    assert looked_at(consortium, secure, MASKED) == set()
    assert found_on_disk(consortium.folder / COORDINATOR) == set()
    assert found_on_disk(consortium.folder / "compiled") == set()
    log = consortium.folder / f"{COORDINATOR}.log"
    assert found_in(log.read_bytes()) == set()
    # The control: the same site, the same coordinator, the same search, without the transform.
    seen = looked_at(consortium, parties.study_of("open", 2), PLAIN)
    assert "float32" in seen
