"""Which frames train, validate and test: balanced shards, and sessions over time with session balancing.

Session balancing (algorithm 3): whoever had pain in a session so far gets `threshold` positive and as many negative
frames of all sessions so far, drawn with replacement, negatives from the negatives; whoever had none gets no frame.
The validation buffer keeps a person's last session for validation until there is a newer one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wardround.core.contracts import Task
from wardround.core.federation import Federation, assemble
from wardround.workflows.pain.frames import PainFrames

Rows = np.ndarray[Any, Any]
CLASSES = ("no pain", "pain")


def balance_down(rows: Rows, y: Rows, generator: np.random.Generator) -> Rows:
    """All rows of the rarer class and as many of the other, drawn without replacement, in mixed order."""
    positive, negative = rows[y[rows] > 0], rows[y[rows] == 0]
    count = min(len(positive), len(negative))
    kept = [generator.choice(one, count, replace=False) for one in (positive, negative)]
    return generator.permutation(np.concatenate(kept))


def session_balance(rows: Rows, y: Rows, threshold: int, generator: np.random.Generator) -> Rows:
    """Of one person's rows so far: `threshold` positive and as many negative ones, or none where nothing hurt."""
    positive, negative = rows[y[rows] > 0], rows[y[rows] == 0]
    if not len(positive):
        return rows[:0]
    kept = [generator.choice(one, threshold) for one in (positive, negative) if len(one)]
    return generator.permutation(np.concatenate(kept))


def session_parts(
    frames: PainFrames, session: int, threshold: int, generator: np.random.Generator, *, buffer: bool = False
) -> dict[str, tuple[Rows, Rows, Rows]]:
    """By person: balanced rows up to this session to train, the next session to validate, the one after to test."""
    parts = {}
    for subject in frames.subjects:
        own = np.flatnonzero(frames.subject == subject)
        times = frames.session[own]
        last = int(times[times <= session + 1].max()) if buffer else session + 1
        so_far = own[times < last] if buffer else own[times <= session]
        parts[subject] = (
            session_balance(so_far, frames.y, threshold, generator),
            own[times == last],
            own[times == session + 2],
        )
    return parts


def shard_parts(
    frames: PainFrames, share: float, generator: np.random.Generator, *, balanced: bool
) -> dict[str, tuple[Rows, Rows, Rows]]:
    """By person: the first `share` of all rows to train (up to 0.6), none to validate, 0.4 to test.

    Balanced: the rows are balanced before they are split, so that the test is, too; else only those to train are.
    """
    rows = generator.permutation(len(frames.y))
    if balanced:
        rows = balance_down(rows, frames.y, generator)
    cut = round(0.6 * len(rows))
    train, test = rows[:cut], rows[cut:]
    if not balanced:
        train = balance_down(train, frames.y, generator)
    train = train[: round(len(train) * share / 0.6)]
    none = rows[:0]
    return {
        subject: (train[frames.subject[train] == subject], none, test[frames.subject[test] == subject])
        for subject in frames.subjects
    }


def held_out(frames: PainFrames, generator: np.random.Generator) -> dict[str, tuple[Rows, Rows, Rows]]:
    """By person, for pre-training: balanced over all people, a fifth to validate, none to test."""
    rows = balance_down(np.arange(len(frames.y)), frames.y, generator)
    fifth = len(rows) // 5
    aside = np.isin(np.arange(len(frames.y)), rows[:fifth])
    return {
        subject: (own[~aside[own]], own[aside[own]], own[:0])
        for subject in frames.subjects
        for own in [rows[frames.subject[rows] == subject]]
    }


def federation_of(frames: PainFrames, parts: dict[str, tuple[Rows, Rows, Rows]]) -> Federation:
    """One site a person."""
    pieces: list[tuple[str, Sequence[tuple[Rows, Rows]]]] = [
        (subject, [(frames.x[rows], frames.y[rows]) for rows in three]) for subject, three in parts.items()
    ]
    return assemble(pieces, Task(frames.x.shape[1:], CLASSES, "pain"))
