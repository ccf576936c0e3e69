"""From a formula and the agreed columns to the columns of a design, and from a site's rows to its numbers.

Categories are compared with a reference level (the first, unless the formula names one). A spline is a natural cubic
one: linear beyond its outer knots, with knots that all sites are told. Rows with a missing value in any column are left
out. Nothing here depends on which patients a site has but the numbers themselves.
"""

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.errors import Refusal
from wardround.statistics.regression.formula import WHERE, Formula, Variable, label_of

Matrix = np.ndarray[Any, Any]
INTERCEPT = "(intercept)"


class DesignColumn(NamedTuple):
    """A column of the design: its label, the place of its term (-1: the intercept), and for a level, which one."""

    label: str
    term: int
    levels: tuple[tuple[str, str], ...] = ()
    """(column, level) of every category in it."""


class Design(NamedTuple):
    """What a formula means for the agreed columns."""

    formula: Formula
    columns: tuple[DesignColumn, ...]
    events: Mapping[str, str]
    """Of an outcome in words, the one that counts as 1."""
    weights: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(one.label for one in self.columns)

    @property
    def splines(self) -> tuple[Variable, ...]:
        return tuple(one for one in self.formula.variables if one.function == "spline")

    @property
    def width(self) -> int:
        return len(self.columns)


class DesignRows(NamedTuple):
    """A site's complete rows: the design without its scaling, the outcome, prior weights, offsets."""

    x: Matrix
    y: Matrix
    weights: Matrix
    offset: Matrix
    dropped: int


def design_of(formula: Formula, agreed: Agreed, *, event: str = "", binary: bool = False, weights: str = "") -> Design:
    """Refused where the formula names what the agreed columns are not."""
    for variable in formula.variables:
        check_variable(variable, agreed.columns[variable.column])
    for name in (*formula.offsets, *([weights] if weights else [])):
        if agreed.columns[name].kind != "number":
            raise Refusal(f"column {name!r} holds words, and an offset or weight is a number", where=WHERE)
    outcome = agreed.columns[formula.outcome]
    events: dict[str, str] = {}
    if outcome.kind == "category":
        if binary and len(outcome.levels) != 2:
            raise Refusal(
                f"the outcome {formula.outcome!r} has {len(outcome.levels)} classes "
                f"({', '.join(outcome.levels[:6])}), and a binomial regression takes two",
                where=WHERE,
                remedy="join them to two with recode in [data.cleaning], or grow boosted_trees, which take more",
            )
        if not binary:
            raise Refusal(
                f"the outcome {formula.outcome!r} holds the words {', '.join(outcome.levels[:6])}",
                where=WHERE,
                remedy='choose a number; or, with two words, family = "binomial"',
            )
        if event and event not in outcome.levels:
            raise Refusal(
                f"the event {event!r} is no value of {formula.outcome!r}",
                where="[analysis] event",
                remedy=f"choose one of {', '.join(outcome.levels)}",
            )
        events[formula.outcome] = event or outcome.levels[-1]
    columns = [DesignColumn(INTERCEPT, -1)] if formula.intercept else []
    full = not formula.intercept
    for place, term in enumerate(formula.terms):
        parts: list[tuple[str, tuple[tuple[str, str], ...]]] = [("", ())]
        for variable in term:
            whole = full and len(term) == 1 and agreed.columns[variable.column].kind == "category"
            full = full and not whole
            own = parts_of(variable, agreed.columns[variable.column], whole=whole)
            parts = [
                (f"{label}:{more}" if label else more, (*levels, *new)) for label, levels in parts for more, new in own
            ]
        columns += [DesignColumn(label, place, levels) for label, levels in parts]
    return Design(formula, tuple(columns), events, weights)


def check_variable(variable: Variable, column: AgreedColumn) -> None:
    if column.kind == "category" and variable.function not in ("", "category"):
        raise Refusal(
            f"{variable.label} needs numbers, and column {variable.column!r} holds words",
            where=WHERE,
            remedy=f"leave {variable.function} out",
        )
    if column.kind == "number" and variable.function == "category":
        raise Refusal(
            f"category({variable.column}) needs words, and the column holds numbers",
            where=WHERE,
            remedy=f'add categories = ["{variable.column}"] to [data], so that its numbers are names',
        )
    if variable.function == "category" and variable.argument and variable.argument not in column.levels:
        raise Refusal(
            f"the reference level {variable.argument!r} is no value of {variable.column!r}",
            where=WHERE,
            remedy=f"choose one of {', '.join(column.levels[:20])}",
        )


def levels_shown(variable: Variable, column: AgreedColumn, *, whole: bool = False) -> tuple[str, ...]:
    """The levels that have a column of their own: all but the reference."""
    return column.levels if whole else tuple(one for one in column.levels if one != reference_of(variable, column))


def reference_of(variable: Variable, column: AgreedColumn) -> str:
    return variable.argument if variable.function == "category" and variable.argument else column.levels[0]


def parts_of(variable: Variable, column: AgreedColumn, *, whole: bool) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """The labels of a variable's columns, with the level that each is for."""
    if column.kind == "category":
        shown = levels_shown(variable, column, whole=whole)
        return [(f"{variable.column}={level}", ((variable.column, level),)) for level in shown]
    if variable.function == "spline":
        return [(f"{variable.label}[{number}]", ()) for number in range(1, int(variable.argument) + 1)]
    return [(variable.label, ())]


# ---- numbers ----


def rows_of(design: Design, agreed: Agreed, table: pd.DataFrame, knots: Mapping[str, Matrix]) -> DesignRows:
    """The complete rows of a site; a column of a product is the product of its factors' columns."""
    formula = design.formula
    used = list(dict.fromkeys((*formula.columns, *([design.weights] if design.weights else []))))
    missing = np.zeros(len(table), bool)
    for name in used:
        missing |= pd.isna(table[name].to_numpy())
    for variable in formula.variables:
        if variable.function == "log":  # not defined, as if unknown
            missing |= ~(np.nan_to_num(table[variable.column].to_numpy(np.float64), nan=1.0) > 0)
    kept = table if not missing.any() else table[~missing]
    blocks: dict[tuple[Variable, bool], Matrix] = {}

    def block(variable: Variable, whole: bool) -> Matrix:
        if (variable, whole) not in blocks:
            blocks[variable, whole] = values_of(variable, agreed.columns[variable.column], kept, knots, whole=whole)
        return blocks[variable, whole]

    x = np.empty((len(kept), design.width), order="F")
    at = 0
    if formula.intercept:
        x[:, 0], at = 1.0, 1
    for place, term in enumerate(formula.terms):
        width = sum(one.term == place for one in design.columns)
        whole = len(term) == 1 and width == len(agreed.columns[term[0].column].levels) > 0
        made = block(term[0], whole)
        for variable in term[1:]:
            other = block(variable, False)
            made = (made[:, :, None] * other[:, None, :]).reshape(len(kept), made.shape[1] * other.shape[1])
        x[:, at : at + width] = made
        at += width
    outcome = kept[formula.outcome].to_numpy()
    y = (outcome == design.events[formula.outcome]).astype(np.float64) if design.events else outcome.astype(np.float64)
    weights = kept[design.weights].to_numpy(np.float64) if design.weights else np.ones(len(kept))
    offset = sum((kept[name].to_numpy(np.float64) for name in formula.offsets), np.zeros(len(kept)))
    return DesignRows(x, y, weights, offset, int(missing.sum()))


def values_of(
    variable: Variable, column: AgreedColumn, table: pd.DataFrame, knots: Mapping[str, Matrix], *, whole: bool
) -> Matrix:
    values = table[variable.column].to_numpy()
    if column.kind == "category":
        return np.column_stack([values == level for level in levels_shown(variable, column, whole=whole)]).astype(float)
    x = values.astype(np.float64)
    if variable.function == "spline":
        return natural_spline(x, knots[variable.column])
    if variable.function == "log":
        return np.log(x)[:, None]
    return (x * x if variable.function == "square" else x)[:, None]


def natural_spline(x: Matrix, knots: Matrix) -> Matrix:
    """A natural cubic spline, one column less than knots: linear, then cubic bends that cancel beyond the last knot.

    Hastie, Tibshirani, Friedman, "The Elements of Statistical Learning", section 5.2.1; in units of the outer knots'
    distance, so that columns are of like size.
    """
    low, high = knots[0], knots[-1]
    z, k = (x - low) / (high - low), (knots - low) / (high - low)

    def bend(at: float) -> Matrix:
        powers: Matrix = (np.maximum(z - at, 0.0) ** 3 - np.maximum(z - 1.0, 0.0) ** 3) / (1.0 - at)
        return powers

    last = bend(float(k[-2]))
    return np.column_stack([z, *(bend(float(at)) - last for at in k[:-2])])


def knots_for(mean: float, deviation: float, df: int) -> Matrix:
    """Knots at even quantiles of a normal distribution with this mean and deviation, from 5 to 95 %."""
    shares = np.linspace(0.05, 0.95, df + 1)
    return mean + deviation * np.array([NormalDist().inv_cdf(float(share)) for share in shares])


def term_label(design: Design, place: int) -> str:
    return label_of(design.formula.terms[place])


def places_of(design: Design, term: int) -> list[int]:
    return [at for at, one in enumerate(design.columns) if one.term == term]


def packed(matrix: Matrix) -> Matrix:
    """The upper triangle of a symmetric matrix, row after row."""
    return np.asarray(matrix[np.triu_indices(matrix.shape[-1])])


def unpacked(triangle: Matrix, width: int) -> Matrix:
    found = np.zeros((width, width))
    found[np.triu_indices(width)] = triangle
    return found + np.triu(found, 1).T
