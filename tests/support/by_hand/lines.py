"""Sites whose outcome lies on a line, each on its own, but for noise."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wardround.core.contracts import Task
from wardround.core.federation import Federation, assemble

LINE = Task((1,), (), "value")


def line_site(rows: int, seed: int, slope: float) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    x = generator.normal(0.5, 1, (rows, 1))
    return x, slope * x[:, 0] + 1 + generator.normal(0, 0.5, rows)


def sites_on_lines(sizes: Sequence[int], slopes: Sequence[float]) -> Federation:
    """As many training rows as `sizes` says, and two of each other part."""
    parts = [
        (f"site-{i}", [line_site(n, 10 * i + k, slope) for k, n in enumerate((n, 2, 2))])
        for i, (n, slope) in enumerate(zip(sizes, slopes, strict=True))
    ]
    return assemble(parts, LINE, ("a",))
