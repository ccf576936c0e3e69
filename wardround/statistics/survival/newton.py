"""Newton's method on a concave likelihood that is known by its sums only: one exchange an evaluation.

Also what the information matrix says about columns that cannot be told apart, and about effects without an end.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.core.errors import Refusal
from wardround.statistics.survival.partial_likelihood import Likelihood

Values = np.ndarray[Any, Any]
CLOSE = 1e-7
"""A last step, in standard deviations of the columns: the next would be its square."""
FLAT, LONG = 1e-3, 0.3
FAR = 15.0
"""Coefficients, per standard deviation, beyond which the hazards of two patients differ by millions."""


class Ascent(NamedTuple):
    """The point to be evaluated next, the best one so far, and whether its step is negligible."""

    beta: Values
    best: Values
    step: Values
    found: Likelihood | None = None
    null: Likelihood | None = None
    evaluations: int = 0
    done: bool = False


def begin_ascent(columns: int) -> Ascent:
    """At no effect."""
    return Ascent(np.zeros(columns), np.zeros(columns), np.zeros(columns))


def ridged(found: Likelihood, beta: Values, ridge: float) -> Likelihood:
    """With the penalty ridge / 2 times the squared length of beta."""
    if ridge == 0:
        return found
    return Likelihood(
        found.value - ridge / 2 * float(beta @ beta),
        found.score - ridge * beta,
        found.information + ridge * np.eye(len(beta)),
    )


def climb(ascent: Ascent, found: Likelihood, names: Sequence[str], remedy: str) -> Ascent:
    """The next point: a Newton step from an improvement, half the last step otherwise.

    At the end `best` is one step beyond the last evaluation, which the step's square makes exact.
    """
    null = found if ascent.null is None else ascent.null
    count = ascent.evaluations + 1
    better = np.isfinite(found.value) and np.isfinite(found.information).all()
    if ascent.found is not None and not (better and found.value >= ascent.found.value - 1e-9 * abs(ascent.found.value)):
        step = ascent.step / 2
        return ascent._replace(beta=ascent.best + step, step=step, evaluations=count)
    check_rank(found.information, names, remedy)
    step = np.linalg.solve(found.information, found.score)
    beta = ascent.beta
    if np.abs(step).max(initial=0.0) <= CLOSE:
        return Ascent(beta + step, beta + step, step, found, null, count, done=True)
    # Where events separate, the likelihood hardly gains while every step is as long as the one before.
    flat = ascent.found is not None and found.value - ascent.found.value < FLAT and np.abs(step).max() > LONG
    if flat or (ascent.found is not None and np.abs(beta + step).max() > FAR):
        raise Refusal(
            f"the effect of {names[int(np.argmax(np.abs(step)))]} has no end: among those who differ in it, all events"
            " are on one side",
            remedy=f"{remedy}, or leave the column out",
        )
    return Ascent(beta + step, beta, step, found, null, count)


def check_rank(information: Values, names: Sequence[str], remedy: str) -> None:
    """Refuse columns that cannot be told apart, by their names."""
    spread = np.sqrt(np.maximum(np.diag(information), 0.0))
    empty = [name for name, one in zip(names, spread, strict=True) if not one > 1e-9]
    if empty:
        raise Refusal(
            f"no difference among the patients at risk when events happen: {', '.join(empty)}",
            remedy=f"leave these columns out, or {remedy}",
        )
    values, vectors = np.linalg.eigh(information / np.outer(spread, spread))
    if len(values) and values[0] < 1e-8:
        named = [name for name, part in zip(names, np.abs(vectors[:, 0]), strict=True) if part > 0.1]
        raise Refusal(
            f"these columns say the same thing together, so their effects cannot be told apart: {', '.join(named)}",
            remedy=f"leave one of them out, or {remedy}",
        )
