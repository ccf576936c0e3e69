"""What many tests share: how much is tested, small federations with known properties, and models to train on them.

Most of the suite's time is XLA's. Tests compile with few optimizations and share what was compiled through a folder,
between workers, child processes and runs; `make test-all` compiles as users do, and runs what is marked slow.
"""

import ctypes
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.support.amount import ALL, is_long

COMPILED = Path(__file__).resolve().parents[1] / ".pytest_cache" / "compiled"
if not ALL:
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(COMPILED))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

MEMORY = Path("/dev/shm")
ROOM = 8_000_000_000
"""Bytes that must be free in memory if the files of quick tests are to lie there."""
can_hold = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
if can_hold and not ALL and "TMPDIR" not in os.environ:
    # The code waits for the disk some hundred thousand times in a run of the suite. That it does so, and when, is seen
    # by tests that watch os.fsync; `make test-all` waits for the real one.
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None
with suppress(OSError, AttributeError):  # two heaps and not eight a core: what was freed in one is used again
    ctypes.CDLL(None).mallopt(-8, 2)

import jax  # noqa: E402

# Two devices for every test, so that results do not depend on the machine's cores.
jax.config.update("jax_num_cpu_devices", 2)

import numpy as np  # noqa: E402
import psutil  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from wardround.core.contracts import Model, Task  # noqa: E402
from wardround.core.federation import Federation, assemble  # noqa: E402
from wardround.models.logistic import logistic  # noqa: E402
from wardround.models.mlp import mlp  # noqa: E402

settings.register_profile("wardround", max_examples=100 if ALL else 25, deadline=None)
settings.load_profile("wardround")
FIRST = (
    "faults",
    "deploy",
    "adversary",
    "contracts",
    "partners",
    "algorithms",
    "privacy",
    "workflows",
    "cli",
    "models",
)
"""Folders whose files take longest: begun first, so that no worker has a long one left at the end."""
PROGRAMS = ("engine", "partners", "privacy", "study", "workflows")
"""Rooms that remember compiled programs, or what they were compiled from."""
LARGE = max(1_100_000_000, min(3_000_000_000, psutil.virtual_memory().available // 8))
"""Bytes of a worker above which it forgets compiled programs between two tests: an eighth of what is free at first,"""
GROWTH = 300_000_000
"""and by how much it must grow until it forgets again: what is left after forgetting is libraries, not programs."""

TASK = Task((3,), ("no", "yes"), "outcome")
TRUE = np.array([1.5, -1.0, 0.5])


def site(rows: int, seed: int, *, labels: int | None = None, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a logistic truth; `labels` makes all of them one class."""
    generator = np.random.default_rng(seed)
    x = generator.normal(shift, 1, (rows, 3)).astype(np.float32)
    y = (generator.random(rows) < 1 / (1 + np.exp(-x @ TRUE))).astype(np.int32)
    return x, y if labels is None else np.full(rows, labels, np.int32)


def federation_of(sizes: list[int], *, shift: float = 0.3) -> Federation:
    return assemble(
        [
            (
                f"site-{i}",
                [site(n, 10 * i + k, shift=shift * i) for k, n in enumerate((n, max(1, n // 3), max(1, n // 3)))],
            )
            for i, n in enumerate(sizes)
        ],
        TASK,
        ("a", "b", "c"),
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow, and begin with the long files."""
    slow = [] if ALL else [item for item in items if item.get_closest_marker("slow") or is_long(item.nodeid)]
    config.hook.pytest_deselected(items=slow)
    left = set(slow)
    places = {folder: place for place, folder in enumerate(FIRST)}

    def place(item: pytest.Item) -> int:
        under = item.path.relative_to(Path(__file__).parent).as_posix()
        return min((where for folder, where in places.items() if under.startswith(folder)), default=len(FIRST))

    items[:] = sorted((item for item in items if item not in left), key=place)


def pytest_collection_finish() -> None:
    """What was imported stays: nobody looks for garbage in it again. JAX makes much that is soon gone by itself."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


_limit = [LARGE]


@pytest.fixture(autouse=True)
def _bounded_memory() -> Iterator[None]:
    """Compiled programs pile up: forget them after a test that left the worker large."""
    yield
    if psutil.Process().memory_info().rss > _limit[0]:
        for name, module in list(sys.modules.items()):
            if name.startswith("wardround.") and name.split(".")[1] in PROGRAMS:
                for member in vars(module).values():
                    if hasattr(member, "cache_clear"):
                        member.cache_clear()
        jax.clear_caches()
        gc.collect()
        with suppress(OSError, AttributeError):  # give freed memory back, where the C library can
            ctypes.CDLL(None).malloc_trim(0)
        _limit[0] = max(LARGE, psutil.Process().memory_info().rss + GROWTH)


@pytest.fixture(scope="session")
def make_federation():
    return federation_of


@pytest.fixture(scope="session")
def ragged() -> Federation:
    """Seven sites: ragged, one empty, one with one class only, one with a single row."""
    sizes = [40, 7, 0, 23, 1, 64, 30]
    parts = []
    for i, n in enumerate(sizes):
        one_class = 1 if i == 3 else None
        held_out = max(1, n // 3)
        parts.append(
            (f"site-{i}", [site(m, 10 * i + k, labels=one_class) for k, m in enumerate((n, held_out, held_out))])
        )
    return assemble(parts, TASK, ("a", "b", "c"))


@pytest.fixture(scope="session")
def even() -> Federation:
    """Seven sites of 48 rows each: more than one batch, so that the order of rows matters."""
    return federation_of([48] * 7)


@pytest.fixture(scope="session")
def model() -> Model:
    return logistic(TASK)


@pytest.fixture(scope="session")
def layered() -> Model:
    """A model with hidden units, for algorithms that leave some of them out."""
    return mlp(TASK, hidden=(6,))
