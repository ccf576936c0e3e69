"""Whether training ended too early: the course of the validation loss, round by round."""

from collections.abc import Mapping, Sequence
from typing import Any

LEAST_LOOKS = 8
"""Looks at the validation patients, fewer than which tell no course."""
LAST = 0.1
"""The share of the rounds at the end that is compared with the whole."""
FALLING = 0.02
"""The share of the whole fall in the last tenth of the rounds from which on the loss still falls: a course that closes
in on its end like exp(-t / T) falls by 2 % there after 2.9 T, when some 5 % of the way are left."""
SMALLEST = 1e-3
"""The fall in that tenth, as a share of the loss, below which it does not matter."""

Course = Sequence[tuple[int, float]]


def validation_losses(records: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """(round, loss over all sites) of every look, from the recorded rounds."""
    found = [(int(one["round"]), one["measures"].get("validation_loss", {}).get("weighted")) for one in records]
    return [(number, float(loss)) for number, loss in found if loss is not None]


def is_still_falling(course: Course, rounds: int) -> bool:
    """Whether the loss was lowest at the end, after all rounds, and fell clearly in the last tenth of them."""
    if len(course) < LEAST_LOOKS or course[-1][0] < rounds:
        return False
    losses = [loss for _, loss in course]
    before = [loss for number, loss in course if number <= course[-1][0] - LAST * (course[-1][0] - course[0][0])]
    whole, recent = losses[0] - losses[-1], before[-1] - losses[-1]
    return losses[-1] <= min(losses) and recent > FALLING * whole > 0 and recent > SMALLEST * abs(losses[-1])
