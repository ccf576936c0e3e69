"""Logistic and Poisson regression under [privacy]: a fixed number of Newton steps on noised sums of clipped rows.

Every step asks for the score and the information at coefficients that everybody knows, with columns clipped to declared
ranges and scaled to -1 .. 1, so that a patient's part is bounded whatever the coefficients are. A step from near the
pooled fit ends at it, but for the noise in that step's score (Newton's error is quadratic): so the ends of the last
steps are as many looks at the same fit, each under noise of its own, and their mean is told. Its covariance is
I^-1 + I^-1 (noise^2 / looks) I^-1. Cf. Avella-Medina, Bradshaw and Loh, "Differentially private inference via noisy
optimization", Ann. Statist. 2023.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from wardround.core.analysis import NOISE, Agreed, Analysis, ExchangeKind, Findings, FoundChart, FoundTable
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.regression.design import INTERCEPT, Design, design_of, packed, rows_of, unpacked
from wardround.statistics.regression.effects import Effect, sentence, units_of
from wardround.statistics.regression.formula import parse_formula
from wardround.statistics.regression.private_fit import ranges_of, refuse_formula, refuse_ranges

Numbers = np.ndarray[Any, Any]
STEPS, LOOKS = 8, 4
"""All steps, and how many of the last ones are looks at the fit."""
CLEAR = 3.0
"""The smallest eigenvalue of the information, in deviations of the noise of a matrix, that is still a fit."""
FURTHEST = 2.0
"""A step in one coefficient of scaled columns, at most."""
SHARE = 1.0
"""Of the score's sensitivity, that of the information, which must stand clear of its noise, too."""


class Bounded(NamedTuple):
    """A family whose rows are bounded: what a residual and a weight can be at most."""

    family: str
    most: float
    """The largest outcome, and so the largest mean."""

    @property
    def weight(self) -> float:
        return 0.25 if self.family == "binomial" else self.most

    def mean(self, eta: Numbers) -> Numbers:
        if self.family == "binomial":
            return np.asarray(1 / (1 + np.exp(-np.clip(eta, -30, 30))))
        return np.asarray(np.exp(np.clip(eta, -30.0, math.log(self.most))))

    def curvature(self, mean: Numbers) -> Numbers:
        return mean * (1 - mean) if self.family == "binomial" else mean

    def scale(self, width: int) -> float:
        """By which the information is multiplied before noise, so that it takes its share of the sensitivity."""
        return SHARE * self.most * math.sqrt(width) / (self.weight * math.sqrt(width * (width + 1) / 2))

    def sensitivity(self, width: int) -> float:
        """Of score and scaled information together."""
        return self.most * math.sqrt(width * (1 + SHARE**2))


class NoisedAscent(NamedTuple):
    """Where the coefficients of scaled columns are after each step, and the information there."""

    design: Design
    agreed: Agreed
    path: tuple[Numbers, ...]
    information: tuple[Numbers, ...] = ()
    noise: float = 0.0
    """Standard deviation of the noise in the score."""

    @property
    def done(self) -> bool:
        return len(self.information) == STEPS


def private_newton(
    *,
    formula: str,
    family: str,
    event: str,
    ranges: tuple[str, ...],
    per: tuple[str, ...],
    level: float,
    most_parameters: int,
) -> Analysis:
    """A fit from noised Newton steps; the outcome of a Poisson regression needs a range, too."""
    parsed, known = parse_formula(formula), ranges_of(ranges)
    refuse_formula(parsed)
    if family == "poisson" and known.get(parsed.outcome, (1.0, 1.0))[0] != 0:
        raise Refusal(
            f"the counts {parsed.outcome!r} have no declared range from 0",
            where="[analysis] ranges",
            remedy=f'add "{parsed.outcome} = 0 to HIGH", from what is known without looking at patients',
        )
    bounded = Bounded(family, known[parsed.outcome][1] if family == "poisson" else 1.0)

    def design_for(agreed: Agreed) -> Design:
        design = design_of(parsed, agreed, event=event, binary=family == "binomial")
        refuse_ranges(design, agreed, known, most_parameters, outcome=False)
        return design

    def begin(agreed: Agreed) -> Tree:
        design = design_for(agreed)
        first = np.zeros(design.width)
        # From counts well below their range: from above Newton's method comes down by 1 a step at most.
        first[0] = 0.0 if family == "binomial" else math.log(bounded.most / 8)
        return NoisedAscent(design, agreed, (first,))

    def message(state: NoisedAscent) -> Message | None:
        return None if state.done else Message({"beta": state.path[-1]})

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        design, beta = design_for(agreed), np.asarray(asked.arrays["beta"], np.float64)
        if beta.shape != (design.width,) or not np.isfinite(beta).all():
            raise Refusal("what is asked is not a question of this regression", remedy="ask for what was approved")
        rows = rows_of(design, agreed, site.table, {})
        middle, half = column_scales(design, known)
        z, y = np.clip((rows.x - middle) / half, -1.0, 1.0), np.clip(rows.y, 0.0, bounded.most)
        mean = bounded.mean(z @ beta)
        information = bounded.scale(design.width) * packed(z.T @ (bounded.curvature(mean)[:, None] * z))
        return Message({"information": information, "score": z.T @ (y - mean)})

    def step(state: NoisedAscent, told: Message) -> Tree:
        return after_step(state, bounded, told)

    def report(state: NoisedAscent) -> Report:
        return findings_of(state, bounded, known, formula, per, level).report()

    def kind(asked: Message) -> ExchangeKind:
        return ExchangeKind("step", STEPS)

    return Analysis(
        parsed.columns, begin, message, ask, step, report, most=STEPS, kind=kind,
        sensitivity=lambda agreed: bounded.sensitivity(design_for(agreed).width),
    )  # fmt: skip


def column_scales(design: Design, known: dict[str, tuple[float, float]]) -> tuple[Numbers, Numbers]:
    """Middle and half of every column's range; levels and the intercept stay 0 and 1."""
    ends = [(-1.0, 1.0) if one.label == INTERCEPT or one.levels else known[one.label] for one in design.columns]
    return np.array([(low + high) / 2 for low, high in ends]), np.array([(high - low) / 2 for low, high in ends])


def after_step(state: NoisedAscent, bounded: Bounded, told: Message) -> NoisedAscent:
    """By the information there, and among the looks by the mean of theirs; small directions are kept clear of noise."""
    width, noise = state.design.width, float(told.arrays.get(NOISE, 0.0))
    scale = bounded.scale(width)
    information = (*state.information, unpacked(np.asarray(told.arrays["information"]), width) / scale)
    recent = np.mean(information[min(len(information), STEPS - LOOKS) - 1 :], axis=0)
    values, vectors = np.linalg.eigh(recent)
    floor = max(noise / scale * math.sqrt(width), 1e-9 * float(np.abs(values).max()), 1e-12)
    move = vectors @ ((vectors.T @ np.asarray(told.arrays["score"])) / np.maximum(values, floor))
    return state._replace(
        path=(*state.path, state.path[-1] + np.clip(move, -FURTHEST, FURTHEST)), information=information, noise=noise
    )


def findings_of(
    state: NoisedAscent, bounded: Bounded, known: dict[str, tuple[float, float]], formula: str, per: Any, level: float
) -> Findings:
    design, width, noise = state.design, state.design.width, state.noise
    looks = np.array(state.path[-LOOKS:])
    information = np.mean(state.information[-LOOKS:], axis=0)
    shaken = noise / bounded.scale(width) / math.sqrt(LOOKS)
    if np.linalg.eigvalsh(information)[0] <= max(CLEAR * shaken * math.sqrt(width), 1e-8):
        raise Refusal(
            "the noise is larger than what the patients tell: some combination of columns varies less than it",
            where="[privacy]",
            remedy="allow a larger epsilon, declare narrower ranges, leave columns out, or let more sites take part",
        )
    inverse = np.linalg.inv(information)
    covariance = inverse + inverse @ inverse * noise**2 / LOOKS
    beta = looks.mean(axis=0)
    # A look is off by its own noise alone once the steps have settled; ends that still walk are no looks at one fit.
    walk = np.abs(looks[-2:].mean(axis=0) - looks[:2].mean(axis=0))
    if (walk > 5 * np.sqrt(np.diag(inverse @ inverse) * noise**2 + 1e-6)).any():
        raise Refusal(
            f"the fit did not settle in {STEPS} steps",
            where="[privacy]",
            remedy="look for a column that alone tells the outcome (perfect separation), or allow a larger epsilon",
        )
    middle, half = column_scales(design, known)
    back = np.diag(1 / half)
    back[0, 1:] = -(middle / half)[1:]
    found = back @ beta
    errors, plain = (np.sqrt(np.diag(back @ part @ back.T)) for part in (covariance, inverse))
    far = float(stats.norm.ppf((1 + level) / 2))
    effects = [
        Effect(value, value - far * error, value + far * error, float(2 * stats.norm.sf(abs(value / error))))
        for value, error in zip(map(float, found), map(float, errors), strict=True)
    ]
    units, ratio = units_of(per, design), "odds" if bounded.family == "binomial" else "mean"
    words = [
        sentence(column, effect, design=design, agreed=state.agreed, ratio=ratio, units=units, level=level)
        for column, effect in zip(design.columns, effects, strict=True)
        if column.label != INTERCEPT
    ]
    share = float(np.mean(1 - (plain / errors) ** 2)) if noise else 0.0
    words.append(
        f"From {STEPS} noised steps over rows clipped to the declared ranges; {100 * share:.0f} % of the uncertainty "
        "is the noise that protects patients, and the intervals include it."
    )
    heads = ("term", "coefficient", f"{100 * level:g} % low", "high", "p", "standard error", "of it without noise")
    lines = [
        [label, *one, float(error), float(less)]
        for label, one, error, less in zip(design.labels, effects, errors, plain, strict=True)
    ]
    shown = [
        {
            "name": label,
            **{key: math.exp(min(end, 700.0)) for key, end in zip(("value", "low", "high"), ends, strict=True)},
            "null": 1.0,
            "log": True,
        }
        for label, ends in zip(
            design.labels, np.stack([found, found - far * errors, found + far * errors], axis=1), strict=True
        )
        if label != INTERCEPT
    ]
    chart = FoundChart("effects", "Ratios with their intervals", "forest", shown, f"{ratio} ratio")
    numbers = {
        "formula": formula,
        "coefficients": dict(zip(design.labels, map(float, found), strict=True)),
        "errors": dict(zip(design.labels, map(float, errors), strict=True)),
        "noise": noise,
    }
    table = FoundTable("coefficients", "Coefficients, with noise", heads, lines)
    return Findings(words, [table], [chart] if shown else [], numbers)
