"""What many tests share: small federations with known properties, and the models to train on them."""

import jax

# Two devices for every test, so that results do not depend on the machine's cores.
jax.config.update("jax_num_cpu_devices", 2)

import numpy as np  # noqa: E402
import pytest  # noqa: E402

from wardround.core.contracts import Model, Task  # noqa: E402
from wardround.core.federation import Federation, assemble  # noqa: E402
from wardround.models.logistic import logistic  # noqa: E402

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
