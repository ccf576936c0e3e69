"""What pushed one patient's prediction up or down: a contribution of every column, which add up to the prediction.

Each patient is compared with the typical one, whose columns hold what the preparation fills in for missing values (the
median or most frequent of training): nothing of any other patient is needed. What is explained is the log-odds of two
classes, the value of a regression, and of more classes the logit of each (less the mean of all, since softmax leaves
that open). Where it is linear in the prepared numbers, a contribution is weight times difference, exactly. Elsewhere it
is the integrated gradient (Sundararajan, Taly, Yan, "Axiomatic Attribution for Deep Networks", ICML 2017) along the
straight path from the typical patient. The path is halved wherever the gradient at the middle of a piece does not give
the change over the piece, so that the contributions add up to 1e-6 also where a network has kinks.

All in double precision; the prediction itself has single precision, and may be 1e-6 of its logit away.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from wardround.core.components.recipes import from_json, names_in
from wardround.core.contracts import Algorithm, Array, Params, Task
from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.evaluate.clinical.importance import linear_weights
from wardround.predict.patients import align_categories
from wardround.predict.predictor import Predictor, Rows, refuse_survival
from wardround.runs.sites import horizons_of

if TYPE_CHECKING:
    from wardround.predict.adaptation import Adaptation

TOLERANCE = 1e-6
"""By which the contributions of a patient may miss the sum."""
FIRST = 16
"""Pieces of a path to begin with, where the model is not linear."""
NARROWEST = 2.0**-30
AFFINE = (("model", "logistic"), ("model", "linear"))
POINTS = 256
"""Points that are computed at a time."""
TINY = 1e-300


@dataclass(frozen=True)
class Explanation:
    """Why the patients of a table were predicted as they were.

    Scores have the shape (rows, outputs), contributions (rows, columns, outputs). There is one output for two classes
    (the log-odds of the one that is looked for) and for a regression (its value), else one for each class.
    """

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    """What stood in the columns, row by row; None where it was missing."""
    typical: tuple[Any, ...]
    """What stands there for the typical patient; None where training knew nothing typical."""
    baseline: Rows
    """The scores of the typical patient."""
    contributions: Rows
    linear: bool
    """Whether the contributions are exact, and not integrals."""
    regression: bool = False

    @property
    def scores(self) -> Rows:
        """What the contributions add up to."""
        total: Rows = self.baseline + self.contributions.sum(axis=1)
        return total


def explain(predictor: Predictor, frame: pd.DataFrame, *, where: str = "") -> Explanation:
    """The contributions of all columns to the prediction of every row."""
    refuse_survival(predictor, "an explanation")
    preparation = predictor.preparation
    frame = align_categories(frame, preparation)
    prepared = np.asarray(preparation.apply(frame, where=where), np.float64)
    typical = typical_row(preparation)
    slope, baseline, shares = affine_shares(predictor, prepared, typical) or found_shares(predictor, prepared, typical)
    contributions = add_by_column(shares, preparation)
    if predictor.adaptation is not None:
        baseline, contributions = adapted(predictor.adaptation, baseline, contributions)
    return Explanation(
        columns=tuple(column.name for column in preparation.columns),
        values=tuple(zip(*(plain_values(column, frame[column.name]) for column in preparation.columns), strict=True)),
        typical=tuple(typical_value(column) for column in preparation.columns),
        baseline=baseline,
        contributions=contributions,
        linear=slope is not None,
        regression=predictor.facts.task.kind == "regression",
    )


def found_shares(predictor: Predictor, prepared: Rows, typical: Rows) -> tuple[Rows | None, Rows, Rows]:
    """The common slope (none where there is none), the typical patient's scores, and the shares of all features."""
    with jax.enable_x64(True):
        model = ScoreModel.of(predictor)
        slope = model.common_slope(typical)
        shares = integrate(model, prepared, typical) if slope is None else (prepared - typical)[:, :, None] * slope
        return slope, model.scores(typical[None])[0], shares


def affine_shares(predictor: Predictor, prepared: Rows, typical: Rows) -> tuple[Rows, Rows, Rows] | None:
    """The same without a compiled program, for the models that are known to be weights times features plus a bias."""
    facts = predictor.facts
    named = names_in(from_json(facts.recipe)) if facts.recipe is not None else ()
    if not any(one in AFFINE for one in named):
        return None
    task = Task(facts.shape, tuple(facts.task.classes), str(facts.task.target), horizons_of(facts.task))
    slope = linear_weights(predictor.params, task, predictor.positive or 0)
    bias = [np.asarray(array, np.float64) for array in predictor.params.values() if np.ndim(array) == 1]
    if slope is None or len(bias) != 1:
        return None
    start = bias[0] - bias[0].mean() if task.outputs > 2 else bias[0]
    if task.outputs == 2:
        positive = predictor.positive or 0
        start = bias[0][[positive]] - bias[0][[1 - positive]]
    return slope, typical @ slope + start, (prepared - typical)[:, :, None] * slope


def adapted(adaptation: "Adaptation", baseline: Rows, contributions: Rows) -> tuple[Rows, Rows]:
    """Contributions to the adapted prediction: all grow as their sum does.

    For a rising map of a linear score that is the integrated gradient.
    """
    distance = contributions.sum(axis=1)
    base, scores = adaptation.map_scores(baseline), adaptation.map_scores(baseline + distance)
    moved = np.abs(distance) > TOLERANCE
    growth = np.where(moved, (scores - base) / np.where(moved, distance, 1.0), adaptation.risk_map.slope)
    return base, contributions * growth[:, None, :]


def probabilities_of(scores: Rows) -> Rows:
    """The probabilities that scores stand for: (..., 1) log-odds give that of the class, (..., classes) all of them."""
    if scores.shape[-1] == 1:
        return 1 / (1 + np.exp(-scores))
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found: Rows = powers / powers.sum(axis=-1, keepdims=True)
    return found


def typical_row(preparation: Preparation) -> Rows:
    """One prepared row of a patient of whom everything is typical and nothing missing."""
    empty = pd.DataFrame({column.name: [None] for column in preparation.columns}, dtype=object)
    row = np.asarray(preparation.apply(empty)[0], np.float64)
    at = 0
    for column in preparation.columns:
        at += len(column.features)
        if column.indicator:
            row[at - 1] = 0.0
    return row


def typical_value(column: NumberColumn | TextColumn) -> Any:
    if isinstance(column, NumberColumn):
        return column.fill if column.scale else None
    return column.fill


def plain_values(column: NumberColumn | TextColumn, series: "pd.Series[Any]") -> list[Any]:
    """Numbers as numbers, anything else as text, None for missing."""
    number = isinstance(column, NumberColumn)
    return [None if pd.isna(value) else (float(value) if number else str(value)) for value in series]


def add_by_column(shares: Rows, preparation: Preparation) -> Rows:
    """Contributions of features as those of the columns that they were made from."""
    widths = np.array([len(column.features) for column in preparation.columns])
    # A column without any category has no feature, and reduceat would give it that of its neighbour.
    starts = (np.cumsum(widths) - widths)[widths > 0]
    found = np.zeros((len(shares), len(widths), shares.shape[2]))
    if len(starts):
        found[:, widths > 0] = np.add.reduceat(shares, starts, axis=1)
    return found


@dataclass(frozen=True)
class ScoreModel:
    """The scores of a predictor and their derivatives by the prepared numbers, in double precision."""

    params: Params
    program: Callable[[Params, Array], tuple[Array, Array]]

    @staticmethod
    def of(predictor: Predictor) -> "ScoreModel":
        params = jax.tree.map(lambda array: np.asarray(array, np.float64), predictor.params)
        return ScoreModel(params, score_program(predictor.algorithm, predictor.positive))

    def at(self, x: Rows) -> tuple[Rows, Rows]:
        """(points, outputs) scores and (points, features, outputs) derivatives."""
        pieces = []
        for begin in range(0, len(x), POINTS):
            some = x[begin : begin + POINTS]
            filled = np.resize(some, (POINTS, *x.shape[1:]))  # one size, so that there is one program
            pieces.append([np.asarray(found)[: len(some)] for found in self.program(self.params, filled)])
        scores, slopes = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        return scores, np.moveaxis(slopes, 1, 2)

    def scores(self, x: Rows) -> Rows:
        return self.at(x)[0]

    def common_slope(self, around: Rows) -> Rows | None:
        """The derivatives (features, outputs), where they are the same everywhere."""
        generator = np.random.default_rng(0)
        spread = generator.normal(size=(FIRST, len(around))) * np.geomspace(0.1, 5, FIRST)[:, None]
        _, slopes = self.at(np.concatenate([around[None], around + spread]))
        apart = np.abs(slopes - slopes[0]).max()
        return slopes[0] if apart <= 1e-9 * (1e-3 + np.abs(slopes).max()) else None


@lru_cache(maxsize=16)
def score_program(algorithm: Algorithm, positive: int | None) -> Callable[[Params, Array], tuple[Array, Array]]:
    """Scores and derivatives of one patient after the other."""

    def scores(params: Params, row: Array) -> Array:
        predicted = algorithm.predict(params, row[None])[0]
        if predicted.ndim == 0:
            return predicted[None]
        logs = jnp.log(jnp.maximum(predicted, TINY))
        if positive is not None:
            return (logs[positive] - logs[1 - positive])[None]
        return logs - logs.mean()

    @jax.jit
    def program(params: Params, x: Array) -> tuple[Array, Array]:
        return jax.vmap(lambda row: (scores(params, row), jax.jacrev(scores, argnums=1)(params, row)))(x)

    def checked(params: Params, x: Array) -> tuple[Array, Array]:
        try:
            return program(params, x)
        except (NotImplementedError, ValueError, TypeError) as error:
            raise Refusal(
                "this model gives no derivatives by a patient's values, so it cannot be explained"
                f" ({str(error).splitlines()[0]})",
                remedy="bring the model as a Flax module (from_flax)",
            ) from error

    return checked


def integrate(model: ScoreModel, x: Rows, typical: Rows) -> Rows:
    """Integrated gradients (rows, features, outputs) along the straight paths from the typical row."""
    found = np.zeros((*x.shape, len(model.scores(typical[None])[0])))
    for begin, end in row_pieces(len(x)):
        integrate_into(found[begin:end], model, x[begin:end] - typical, typical)
    return found


def row_pieces(rows: int) -> Iterator[tuple[int, int]]:
    return ((begin, min(begin + POINTS, rows)) for begin in range(0, rows, POINTS))


def integrate_into(found: Rows, model: ScoreModel, difference: Rows, typical: Rows) -> None:
    """Add up what every piece of the paths gives; pieces that hold a kink, or bend too much, are halved."""
    row = np.repeat(np.arange(len(difference)), FIRST)
    low = np.tile(np.arange(FIRST) / FIRST, len(difference))
    width = 1 / FIRST
    ends = model.scores(typical + np.concatenate([low, low + width])[:, None] * difference[np.tile(row, 2)])
    before, after = np.split(ends, 2)
    while len(row):
        scores, slopes = model.at(typical + (low + width / 2)[:, None] * difference[row])
        gained = slopes * difference[row][:, :, None] * width
        miss = np.abs(gained.sum(axis=1) - (after - before)).max(axis=1)
        good = (miss <= TOLERANCE * width) | (width <= NARROWEST)
        np.add.at(found, row[good], gained[good])
        bad = ~good
        row, low, width = np.repeat(row[bad], 2), np.repeat(low[bad], 2), width / 2
        low[1::2] += width
        before, after = both_halves(before[bad], scores[bad]), both_halves(scores[bad], after[bad])


def both_halves(first: Rows, second: Rows) -> Rows:
    """Rows of the one and of the other in turn."""
    return np.stack([first, second], axis=1).reshape(-1, first.shape[1])


def waterfall(found: Explanation, row: int, output: int) -> list[tuple[int, float, float]]:
    """How a patient's prediction comes about from the typical patient's, the weightiest column first.

    For each column its place, and the probability (or value) before and after it. Zero contributions come last.
    """
    shares = found.contributions[row]
    order = np.argsort(-np.abs(shares[:, output]), kind="stable")
    courses = found.baseline + np.concatenate([np.zeros((1, shares.shape[1])), np.cumsum(shares[order], axis=0)])
    course = courses[:, 0] if found.regression else probabilities_of(courses)[:, output]
    return [(int(column), float(course[at]), float(course[at + 1])) for at, column in enumerate(order)]
