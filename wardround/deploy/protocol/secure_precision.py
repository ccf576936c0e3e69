"""The precision of a study's secure sum, which coordinator and sites each read from its transforms."""

from collections.abc import Sequence

from wardround.core.components.recipes import Recipe
from wardround.core.errors import Refusal
from wardround.engine import registry

SECURE_SUM = "secure_sum"
NOISE_ROOM = 2**50
"""Whole numbers: 16 times the largest deviation of a site's noise."""


def ring_bits_of(transforms: Sequence[Recipe]) -> int:
    """Bits of the ring in which the study's answers are added up."""
    known = {one.name: one.default for one in registry.find("transform", SECURE_SUM).parameters}
    return int({**known, **dict(transforms[-1].settings)}["bits"])


def precision_of(transforms: Sequence[Recipe]) -> tuple[int, float]:
    """Binary places and bound that the study's last transform says; only a secure sum at the end is understood."""
    sums = [one.name for one in transforms[:-1] if one.name == SECURE_SUM]
    if sums or not transforms or transforms[-1].name != SECURE_SUM:
        raise Refusal("a secure sum must be the last transform", where="[[transforms]]", remedy="move it to the end")
    known = {one.name: one.default for one in registry.find("transform", SECURE_SUM).parameters}
    words = {**known, **dict(transforms[-1].settings)}
    return int(words["fraction_bits"]), float(words["bound"])
