"""What came back from a site: whether it can be used, and what to tell where it cannot."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.core.contracts import Message
from wardround.core.errors import Diverged, Refusal

HUGE = 1e20
"""Larger numbers are a fault: their squares are not finite any more."""


class Answer(NamedTuple):
    """A site's answer, decoded, how many bytes it took, and why it cannot be used (if so)."""

    header: dict[str, Any]
    message: Message
    size: int
    wrong: str | None = None


def spoilt(bad: Mapping[str, str], number: int) -> Refusal:
    """What to tell when so many answers cannot be used that the quorum is out of reach."""
    names = ", ".join(sorted(bad))
    if all("diverged" in why for why in bad.values()):
        return Diverged(f"training diverged in round {number} at {names}", number, tuple(sorted(bad)))
    return Refusal(
        "; ".join(f"{site}: {why}" for site, why in sorted(bad.items())),
        where=f"round {number}",
        remedy="let this site look at its rows and its version of wardround, allow fewer sites a round with [deploy] "
        "quorum, or leave the site out with [deploy] sites",
    )


def misfit(answer: Answer, shapes: Message) -> str | None:
    """Why an answer cannot be used: other arrays than expected, or numbers that are not finite."""
    if answer.header.get("status") == "diverged":
        return "its training diverged: the answer is not a finite number"
    expected, structure = jax.tree.flatten(shapes.arrays)
    given, found = jax.tree.flatten(answer.message.arrays)
    if str(structure) != str(found):
        return "its answer holds other arrays than the algorithm's"
    for want, got in zip(expected, given, strict=True):
        if np.shape(got) != want.shape or np.asarray(got).dtype != want.dtype:
            return f"its answer has an array of shape {np.shape(got)} where {want.shape} was expected"
    # Smallest and largest tell it all without an array in between: what is not a number passes through both.
    floats = [np.asarray(one) for one in given if np.asarray(one).dtype.kind == "f"]
    ends = [abs(float(end)) for one in floats if one.size for end in (one.min(), one.max())]
    if not all(np.isfinite(ends)):
        return "its answer is not finite"
    largest = max(ends, default=0.0)
    if largest > HUGE:
        return f"its answer holds numbers as large as {largest:.0e}"
    return None
