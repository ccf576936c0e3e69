"""The three compression schemes of Caldas et al. 2018, in both directions: Kashin's representation, thinned, rounded.

"Expanding the Reach of Federated Learning by Reducing Client Resource Requirements", table 2:

| scheme       | from a site: fraction, bits | to a site: fraction, bits |
|--------------|-----------------------------|---------------------------|
| aggressive   | 0.4, 2                      | 1, 3                      |
| moderate     | 0.5, 4                      | 1, 5                      |
| conservative | 1, 8                        | 1, 8                      |

The same as kashin, subsample and quantize in one another's wake. `basis` may be "hadamard", which needs an eighth fewer
numbers. Arrays below `smallest` entries are left alone. Answers cannot be summed in secret: see secure_sum's `bits`.
"""

from typing import Literal

from wardround.core.chain import chain
from wardround.core.contracts import Transform
from wardround.transforms.codec import SMALLEST, Direction, Smallest
from wardround.transforms.hadamard import hadamard
from wardround.transforms.kashin import kashin
from wardround.transforms.quantize import quantize
from wardround.transforms.subsample import subsample

Scheme = Literal["aggressive", "moderate", "conservative"]
SCHEMES: dict[Scheme, tuple[float, int, int]] = {
    "aggressive": (0.4, 2, 3),
    "moderate": (0.5, 4, 5),
    "conservative": (1.0, 8, 8),
}
"""Fraction and bits from a site, bits to a site."""


def compression(
    *,
    scheme: Scheme = "moderate",
    basis: Literal["kashin", "hadamard"] = "kashin",
    direction: Direction = "both",
    smallest: Smallest = SMALLEST,
) -> Transform:
    """Compresses models and answers by one of three schemes: aggressive, moderate or conservative."""
    fraction, up, down = SCHEMES[scheme]
    rotation = {"kashin": kashin, "hadamard": hadamard}[basis]
    links: list[Transform] = [rotation(direction=direction, smallest=smallest)]
    if direction != "down":
        links += [subsample(fraction=fraction, smallest=smallest)] if fraction < 1 else []
        links += [quantize(bits=up, direction="up", smallest=smallest)]
    if direction != "up":
        links += [quantize(bits=down, direction="down", smallest=smallest)]
    return chain(links)
