"""What a site answers in an exchange of a regression: sums over its own patients, or nothing where they would tell.

A site adds nothing (zeros, and a 1 under "silent") where it has fewer patients than its smallest cell, more than one
parameter for three patients, or a group of patients (a level, a yes, an event, the patients between two knots of a
spline) that is smaller than a cell: DataSHIELD's rules nfilter.glm and nfilter.tab. And it refuses coefficients under
which a few patients alone would make up the sums, as whoever wants to single them out would send: the weights of an
exchange must be spread over at least a cell, and over two in a hundred, of the patients. Nor does it answer
coefficients that make almost every outcome certain: between two such that differ by one patient on the other side of a
threshold, the difference of two sums would be that patient. For the same reason no patient's mean may lie where the
family has none. What folds of a cross-validation tell is held to the same rules, fold by fold.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from wardround.core.errors import Refusal
from wardround.statistics.regression.design import Design, DesignRows, packed
from wardround.statistics.regression.families import LINKS, Link, OutcomeFamily, alpha_slopes

Array = np.ndarray[Any, Any]
BLOCK = 1 << 13
"""Rows at a time: what is computed of them stays in the processor's own memory."""
SHARE_OF_PARAMETERS = 1 / 3
"""Parameters for a patient, at most."""
STEEPEST = 6.0
"""Standard deviations of the linear predictor among a site's patients, at most; a fit of an AUC of 0.99 has four."""
FARTHEST = 4 * STEEPEST
"""How far from the mean one patient's linear predictor may be: with a column that few have, few could be spread out."""
HUGE_MEAN = 1e9
LARGEST_RESIDUAL = 100.0
"""A patient's squared Pearson residual counts up to here: as exp(eta) it could be that of one patient alone."""
SPREAD = 0.02
"""The share of patients over which the weights of an exchange must at least be spread."""


class Problem(NamedTuple):
    """One fit of those that an exchange is about: where it stands, and over which rows."""

    beta: Array
    alpha: float = 1.0
    fold: int = -1
    """Rows of this fold are held out; -1: none are."""
    place: int = -1
    """The number of the only site that counts; -1: all do."""


def is_telling(
    rows: DesignRows, design: Design, knots: Mapping[str, Array], splines: Mapping[str, Array], cell: int
) -> bool:
    """Whether sums over these rows would tell of fewer patients than a cell; see the rules above."""
    count = len(rows.y)
    if cell <= 1:
        return False
    if count < cell or design.width > SHARE_OF_PARAMETERS * count:
        return True
    if any(is_small_group(column, cell) for column in (*rows.x.T, rows.y)):
        return True
    for name, at in knots.items():
        held = np.bincount(np.searchsorted(at, splines[name]), minlength=len(at) + 1)
        if ((held > 0) & (held < cell)).any():
            return True
    return False


def has_telling_fold(rows: DesignRows, fold: Array, design: Design, cell: int) -> bool:
    """Whether a fold would tell of few: what all rows tell, less what all but a fold tell, is told of the fold."""
    if cell <= 1:
        return False
    parts = (fold == number for number in range(int(fold.max(initial=0)) + 1))
    return any(is_telling(part_of(rows, own), design, {}, {}, cell) for own in parts)


def part_of(rows: DesignRows, own: Array) -> DesignRows:
    return DesignRows(rows.x[own], rows.y[own], rows.weights[own], rows.offset[own], 0)


def is_small_group(column: Array, cell: int) -> bool:
    """Whether a column of two values has one that fewer patients than a cell have, and not none."""
    low, high = column.min(), column.max()
    if low == high:
        return False
    first = column == low
    many = int(first.sum())
    return bool((first | (column == high)).all()) and min(many, len(column) - many) < cell


def moments(rows: DesignRows | None, width: int) -> dict[str, Array]:
    """Sums from which the columns are centred and scaled, and the mean outcome; none where a site adds nothing."""
    if rows is None:
        zero = np.zeros(())
        nothing = {"rows": zero, "dropped": zero, "weight": zero, "outcome": zero}
        return {**nothing, "sum": np.zeros(width), "square": np.zeros(width), "silent": np.ones(())}
    total = rows.weights.sum()
    return {
        "rows": np.array(float(len(rows.y))),
        "dropped": np.array(float(rows.dropped)),
        "weight": np.array(total),
        "outcome": np.array(rows.weights @ rows.y),
        "sum": rows.x.sum(axis=0),
        "square": np.array([column @ column for column in rows.x.T]),
        "silent": np.zeros(()),
    }


def folds_of(count: int, folds: int, site: str) -> Array:
    """Which fold each row is in: the same at every exchange, drawn by the site's name."""
    order = np.random.default_rng([folds, zlib.crc32(site.encode())]).permutation(count)
    return np.asarray(order % folds)


@dataclass
class ExtentOfSums:
    """Over how many patients the sums of an exchange spread, and how far apart these are."""

    spread: Array = field(default_factory=lambda: np.zeros(4))
    steep: Array = field(default_factory=lambda: np.zeros(3))
    ends: tuple[float, float] = (np.inf, -np.inf)
    outside: bool = False

    def add(self, own: Array, weight: Array, pull: Array, inside: Array) -> None:
        """Rows with their linear predictors, weights and parts of the score, and whether the family has their mean."""
        self.spread += (weight.sum(), weight @ weight, np.abs(pull).sum(), pull @ pull)
        self.steep += (len(own), own.sum(), own @ own)
        self.ends = min(self.ends[0], float(own.min())), max(self.ends[1], float(own.max()))
        self.outside = self.outside or not bool(inside.all())

    def refuse(self, family: OutcomeFamily, link: Link, count: int, cell: int) -> None:
        """Refuse coefficients by which single patients would show."""
        least = max(cell, SPREAD * count)
        for first, second in (self.spread[:2], self.spread[2:]):  # Kish's effective number of patients
            if count and second > 0 and first * first < least * second:
                raise Refusal(
                    f"with these coefficients fewer than {least:.0f} patients would make up the sums",
                    remedy="fit a smaller model, or a penalised one; whoever asks for single patients gets nothing",
                )
        if link.bends:
            middle = self.steep[1] / self.steep[0]
            deviation = max(self.steep[2] / self.steep[0] - middle**2, 0.0) ** 0.5
            if deviation > STEEPEST or max(middle - self.ends[0], self.ends[1] - middle) > FARTHEST:
                raise Refusal(
                    "with these coefficients nearly every outcome would be certain, as where it is separated perfectly",
                    remedy='add penalty = "ridge", or leave out the column from which the outcome is known',
                )
        # Sums of a linear regression are polynomials of the coefficients: whatever is asked, they tell the same.
        elif self.outside and not (family.name == "gaussian" and link is LINKS["identity"]):
            raise Refusal(
                "with these coefficients some patients have a mean that the family cannot have",
                remedy="choose the family's own link, or fit a smaller model",
            )


def evaluate(
    rows: DesignRows | None,
    problem: Problem,
    family: OutcomeFamily,
    link: Link,
    *,
    center: Array,
    scale: Array,
    fold: Array | None,
    clustered: bool,
    cell: int,
) -> dict[str, Array]:
    """Information, score and deviance at the problem's coefficients, over the rows that count for it."""
    width = len(problem.beta)
    exact = cell <= 1 or family.name == "gaussian"
    found = nothing_of(width, clustered=clustered)
    if rows is None or not len(rows.y):
        return found
    info, score = np.zeros((width, width)), np.zeros(width)
    sums = np.zeros(7)
    extent = ExtentOfSums()
    slopes = np.zeros(2)
    for first in range(0, len(rows.y), BLOCK):
        part = slice(first, first + BLOCK)
        z = np.array(rows.x[part], order="C")
        z -= center
        z /= scale
        y, prior = rows.y[part], rows.weights[part]
        own = z @ problem.beta
        eta = own + rows.offset[part]
        free = link.mean(eta)
        mean = np.clip(free, *family.bounds)
        if fold is not None and problem.fold >= 0:
            held = fold[part] == problem.fold
            sums[4] += float(prior[held] @ family.deviance(y[held], mean[held], problem.alpha))
            sums[5] += float(held.sum())
            prior = np.where(held, 0.0, prior)
        slope, variance = link.slope(eta), family.variance(mean, problem.alpha)
        weight = prior * slope * slope / variance
        pull = prior * (y - mean) * slope / variance
        score += pull @ z
        z *= np.sqrt(weight)[:, None]
        info += z.T @ z  # of one matrix with itself, which takes half the work
        sums[0] += float(prior @ family.deviance(y, mean, problem.alpha))
        squares = (y - mean) ** 2 / variance
        sums[1] += float(prior @ (squares if exact else np.minimum(squares, LARGEST_RESIDUAL)))
        sums[2] += float(prior @ family.loglik(y, mean, problem.alpha)) if family.loglik is not None else 0.0
        sums[3] += float((prior > 0).sum())
        if family.name == "gamma":
            sums[6] += float(prior @ np.log(y))
        inside = (free > family.bounds[0]) & (free < family.bounds[1]) & (np.abs(free) < HUGE_MEAN)
        extent.add(own, weight, pull, inside)
        if family.name == "negative_binomial":
            slopes += alpha_slopes(y, mean, prior, problem.alpha)
    if cell > 1:
        extent.refuse(family, link, int(sums[3]), cell)
    names = ("deviance", "pearson", "loglik", "rows", "held", "held_rows", "log_outcome")
    found |= {name: np.array(value) for name, value in zip(names, sums, strict=True)}
    found |= {"info": packed(info), "score": score, "alpha": slopes}
    if clustered:
        found["cluster"] = packed(np.outer(score, score))
    return found


def nothing_of(width: int, *, clustered: bool) -> dict[str, Array]:
    """The answer of a site that adds nothing."""
    zero, triangle = np.zeros(()), np.zeros(width * (width + 1) // 2)
    names = ("deviance", "pearson", "loglik", "rows", "held", "held_rows", "log_outcome")
    found = {**dict.fromkeys(names, zero), "info": triangle, "score": np.zeros(width), "alpha": np.zeros(2)}
    return {**found, "cluster": triangle} if clustered else found
