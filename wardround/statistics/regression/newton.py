"""The coordinator's half of a regression: Newton's method on sums, with or without a penalty.

Everything is in standardised units (columns centred and scaled), in which steps, penalties and collinearity are judged;
`unscaled` takes coefficients and covariance back to the units of the data.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.core.errors import Refusal
from wardround.statistics.regression.design import Design

Array = np.ndarray[Any, Any]
SMALLEST_STEP = 1e-11
"""In standard deviations of the linear predictor: where the link is the family's own, the next one is of its square."""
COLLINEAR = 1e-10
"""The smallest eigenvalue of the scaled information, of 1 in the mean, at which columns still differ."""
FAR = 12.0
"""A coefficient per standard deviation from which on, for a yes or no, the outcome is taken to be separated."""
SWEEPS = 10_000


class Penalty(NamedTuple):
    """strength (mixing |b| + (1 - mixing) b^2 / 2) for every coefficient but the intercept, for the mean loss."""

    strength: float = 0.0
    mixing: float = 0.0

    @property
    def is_none(self) -> bool:
        return self.strength == 0.0


class Fit(NamedTuple):
    """One problem on its way: where it stands, the last sums, and whether it has come to its end."""

    beta: Array
    free: Array
    """Which coefficients are fitted; the others stay 0."""
    penalty: Penalty = Penalty()
    alpha: float = 1.0
    fold: int = -1
    place: int = -1
    done: bool = False
    failed: str = ""
    info: Array | None = None
    sums: dict[str, Any] | None = None
    before: Array | None = None
    """Where the last step began."""
    objective: float = np.inf
    steps: int = 0


def penalized(fit: Fit, beta: Array, intercept: bool, rows: float) -> float:
    """What the penalty adds to the deviance."""
    b = beta[1:] if intercept else beta
    strength, mixing = fit.penalty
    return float(2 * rows * strength * (mixing * np.abs(b).sum() + (1 - mixing) / 2 * (b @ b)))


def advance(fit: Fit, sums: dict[str, Any], info: Array, *, intercept: bool, dispersion_free: bool) -> Fit:
    """The next step from sums at where the fit stands; a step that made things worse is halved."""
    rows = max(float(sums["rows"]), 1.0)
    objective = float(sums["deviance"]) + penalized(fit, fit.beta, intercept, rows)
    slack = 1e-9 * (abs(objective) + 1.0)
    if fit.before is not None and not objective <= fit.objective + slack and fit.steps < 200:
        # Not on the way to the answer: half of the step, from the same place.
        return fit._replace(beta=(fit.beta + fit.before) / 2, steps=fit.steps + 1)
    kept = fit._replace(info=info, sums=sums, objective=objective, steps=fit.steps + 1)
    free = fit.free
    part, pull = info[np.ix_(free, free)], np.asarray(sums["score"])[free]
    try:
        target = quadratic_step(part, pull, fit.beta[free], fit.penalty, rows, intercept and bool(free[0]))
    except np.linalg.LinAlgError:
        return kept._replace(done=True, failed="collinear")
    beta = np.zeros_like(fit.beta)
    beta[free] = target
    size = float(np.sqrt(max((beta - fit.beta)[free] @ part @ (beta - fit.beta)[free], 0.0) / rows))
    alpha, moved = fit.alpha, 0.0
    if dispersion_free:
        first, second = (float(one) for one in np.asarray(sums["alpha"]))
        change = float(np.clip(-first / second if second < 0 else np.sign(first) * 0.5, -1.0, 1.0))
        alpha, moved = float(np.clip(fit.alpha * np.exp(change), 1e-8, 1e6)), abs(change)
    # The information is of before the step, but the step is so small that it is the same to nine digits.
    if size < SMALLEST_STEP and moved < 1e-8:
        return kept._replace(beta=beta, alpha=alpha, done=True)
    return kept._replace(beta=beta, alpha=alpha, before=fit.beta, objective=np.inf if dispersion_free else objective)


def quadratic_step(info: Array, score: Array, beta: Array, penalty: Penalty, rows: float, intercept: bool) -> Array:
    """The minimum of the quadratic that sums describe, with the penalty: in closed form, or by coordinate descent."""
    first = 1 if intercept else 0
    if penalty.is_none or penalty.mixing == 0.0:
        ridge = np.full(len(beta), rows * penalty.strength)
        ridge[:first] = 0.0
        return np.asarray(beta + solve(info + np.diag(ridge), score - ridge * beta))
    # Of the loss: 1/2 (b - t)' info (b - t), whose gradient at b is info (b - beta) - score.
    hessian, lasso = info / rows, penalty.strength * penalty.mixing
    ridge_of = penalty.strength * (1 - penalty.mixing)
    found, gradient = beta.copy(), -score / rows
    for _ in range(SWEEPS):
        largest = 0.0
        for j in range(len(found)):
            curve, old = float(hessian[j, j]), float(found[j])
            if curve <= 0:
                continue
            wanted = curve * old - float(gradient[j])
            new = wanted / curve if j < first else soft(wanted, lasso) / (curve + ridge_of)
            if new != old:
                gradient = gradient + hessian[:, j] * (new - old)
                found[j] = new
                largest = max(largest, abs(new - old) * curve**0.5)
        if largest < 1e-13:
            break
    return found


def soft(value: float, by: float) -> float:
    return float(np.sign(value) * max(abs(value) - by, 0.0))


def solve(matrix: Array, right: Array) -> Array:
    """With rows and columns scaled to a diagonal of 1, which loses the fewest digits."""
    size = np.sqrt(np.diag(matrix))
    if not (size > 0).all():
        raise np.linalg.LinAlgError
    scaled = matrix / np.outer(size, size)
    if np.linalg.eigvalsh(scaled)[0] < COLLINEAR:
        raise np.linalg.LinAlgError
    factor = np.linalg.cholesky(scaled)
    half = np.linalg.solve(factor, right / (size if right.ndim == 1 else size[:, None]))
    whole = np.linalg.solve(factor.T, half)
    return np.asarray(whole / (size if right.ndim == 1 else size[:, None]))


def inverse(matrix: Array) -> Array:
    return solve(matrix, np.eye(len(matrix)))


def refuse_collinear(info: Array, design: Design) -> None:
    """Name the columns that together tell nothing new."""
    size = np.sqrt(np.diag(info))
    constant = [label for label, one in zip(design.labels, size, strict=True) if not one > 0]
    if constant:
        raise Refusal(
            f"the column {constant[0]} has the same value for all patients that count",
            where="[analysis] formula",
            remedy="leave it out",
        )
    values, vectors = np.linalg.eigh(info / np.outer(size, size))
    if values[0] >= COLLINEAR:
        return
    weights = np.abs(vectors[:, 0])
    named = [design.labels[at] for at in np.argsort(-weights) if weights[at] > 0.05][:8]
    raise Refusal(
        f"these columns are collinear, so that one follows from the others: {', '.join(sorted(named))}",
        where="[analysis] formula",
        remedy='leave one of them out, or add penalty = "ridge"',
    )


def separating(fit: Fit, design: Design) -> list[str]:
    """Columns whose coefficients run away: the outcome is known from them without a doubt."""
    first = 1 if design.formula.intercept else 0
    far = np.abs(fit.beta[first:])
    return [design.labels[first + int(at)] for at in np.argsort(-far) if far[at] > FAR]


def unscaled(design: Design, center: Array, scale: Array) -> Array:
    """The matrix that takes standardised coefficients to those of the data's own units."""
    width = design.width
    back = np.diag(1 / scale)
    if design.formula.intercept:
        back[0, 1:] = -(center / scale)[1:]
        back[0, 0] = 1.0
    return back[:width, :width]
