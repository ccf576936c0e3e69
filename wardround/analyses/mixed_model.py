"""Linear mixed model: a regression with a random intercept for each site, as if all rows were in one place.

Laird and Ware, Biometrics 1982; by sums as Luo et al., "DLMM", Nature Communications 2022. With the ratio g of the
variance between sites to that within them, a site's part of the likelihood is a sum over its own patients and its own
mean, so the sums over sites are enough, and no site's mean is seen. The sites are asked for a few values of g at a
time, each exchange closer to the best one: about a dozen exchanges. Works under the secure sum.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from wardround.core.analysis import Agreed, Analysis, Findings, FoundChart, FoundTable
from wardround.core.bounds import Count, Share
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Settings, Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.regression.design import INTERCEPT, Design, design_of, packed, rows_of, unpacked
from wardround.statistics.regression.effects import Effect, sentence, units_of
from wardround.statistics.regression.formula import parse_formula
from wardround.statistics.regression.newton import inverse, refuse_collinear, solve
from wardround.statistics.regression.site_sums import is_telling, moments

LABEL = "Linear mixed model"
TRIED = 9
"""Ratios of variances in one exchange."""
FIRST = np.array([0.0, *np.logspace(-4, 3, TRIED - 1)])
CLOSE = 1e-7
"""How far apart, as a part of it, the last ratios may be."""


class MixedState(NamedTuple):
    """What is known so far."""

    design: Design
    agreed: Agreed
    center: Any = None
    scale: Any = None
    counts: Mapping[str, float] = MappingProxyType({})
    ratios: Any = FIRST
    best: float | None = None
    sums: dict[str, Any] | None = None
    exchanges: int = 0


def words_of(said: Settings) -> str:
    return (
        f"sums over your patients for the mixed model {said['formula']}: products of columns with one another and with "
        "the outcome, less a part of those of your means; nothing where there are fewer than "
        f"{said['smallest_cell']} patients, fewer than three for every coefficient, or a level with fewer than "
        f"{said['smallest_cell']}"
    )


def numbers_of(said: Settings) -> int:
    width = int(said["most_parameters"]) + 1
    return TRIED * (width * (width + 1) // 2 + 1) + 3 * width + 12


@recorded("analysis", Terms(words_of, lambda of: numbers_of(of.settings)))
def mixed_model(
    *,
    formula: str,
    method: Literal["reml", "ml"] = "reml",
    per: tuple[str, ...] = (),
    level: Share = 0.95,
    most_parameters: Count = 50,
    smallest_cell: Count = 1,
) -> Analysis:
    """Linear regression with a random intercept for each site; equal to the mixed model on pooled rows."""
    parsed = parse_formula(formula)
    if parsed.offsets or not parsed.intercept or any(one.function == "spline" for one in parsed.variables):
        raise Refusal(
            "a mixed model takes an intercept, columns and their products, and no offset or spline",
            where="[analysis] formula",
            remedy="leave it out",
        )

    def begin(agreed: Agreed) -> Tree:
        design = design_of(parsed, agreed)
        if design.width > most_parameters:
            raise Refusal(f"the formula has {design.width} coefficients, and {most_parameters} are allowed")
        if len(agreed.sites) < 2:
            raise Refusal("a mixed model needs at least two sites", where="[data]", remedy='use name = "glm"')
        return MixedState(design, agreed)

    def message(state: MixedState) -> Message | None:
        if state.scale is None:
            return Message({"stage": np.array(1.0)})
        if state.best is not None:
            return None
        return Message(
            {"stage": np.array(2.0), "center": state.center, "scale": state.scale, "ratios": np.asarray(state.ratios)}
        )

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        design, arrays = design_of(parsed, agreed), asked.arrays
        found = rows_of(design, agreed, site.table, {})
        rows = None if is_telling(found, design, {}, {}, smallest_cell) else found
        width = design.width + 1
        if int(np.asarray(arrays.get("stage", 0))) == 1:
            square = 0.0 if rows is None else float(rows.y @ rows.y)
            return Message({**moments(rows, design.width), "outcome_square": np.array(square)})
        shapes = [np.shape(arrays.get(name, 0)) for name in ("center", "scale", "ratios")]
        if shapes != [(width,), (width,), (TRIED,)] or not (np.asarray(arrays["ratios"]) >= 0).all():
            raise Refusal("what is asked is not a question of this mixed model", remedy="ask for what was approved")
        if rows is None or not len(rows.y):
            triangle = np.zeros((TRIED, width * (width + 1) // 2))
            return Message({"triangle": triangle, "logs": np.zeros(TRIED)})
        both = (np.column_stack([rows.x, rows.y]) - np.asarray(arrays["center"])) / np.asarray(arrays["scale"])
        gram, total, count = both.T @ both, both.sum(axis=0), len(both)
        shares = [float(ratio) / (1 + float(ratio) * count) for ratio in arrays["ratios"]]
        return Message(
            {
                "triangle": np.stack([packed(gram - share * np.outer(total, total)) for share in shares]),
                "logs": np.array([math.log1p(float(ratio) * count) for ratio in arrays["ratios"]]),
            }
        )

    def step(state: MixedState, told: Message) -> Tree:
        arrays = told.arrays
        if state.scale is None:
            return scaled_state(state, arrays)
        tried = [unpacked(np.asarray(one), state.design.width + 1) for one in arrays["triangle"]]
        if state.exchanges == 0:
            refuse_collinear(tried[0][:-1, :-1], state.design)
        rows = state.counts["rows"]
        losses = [
            profile(one, float(logs), rows, method) for one, logs in zip(tried, np.asarray(arrays["logs"]), strict=True)
        ]
        at = int(np.argmin(losses))
        ratios = np.asarray(state.ratios)
        low, high = ratios[max(at - 1, 0)], ratios[min(at + 1, len(ratios) - 1)]
        kept = state._replace(exchanges=state.exchanges + 1)
        if high - low <= CLOSE * max(float(ratios[at]), 1e-3) or state.exchanges > 16:
            sums = {"triangle": tried[at], "loss": losses[at]}
            return kept._replace(best=float(ratios[at]), sums=sums)
        return kept._replace(ratios=between(float(low), float(high), float(ratios[at]), losses, at, ratios))

    def report(state: MixedState) -> Report:
        return findings_of(state, formula, method, per, level).report()

    return Analysis(parsed.columns, begin, message, ask, step, report, most=20)


def between(low: float, high: float, best: float, losses: list[float], at: int, ratios: Any) -> Any:
    """Nearer ratios: around the vertex of the parabola through the best three, and evenly between its neighbours."""
    vertex = best
    if 0 < at < len(ratios) - 1:
        x, y = ratios[at - 1 : at + 2], losses[at - 1 : at + 2]
        curve = np.polyfit(x - best, y, 2)
        if curve[0] > 0:
            vertex = float(np.clip(best - curve[1] / (2 * curve[0]), low, high))
    width = high - low
    near = [vertex + width * share for share in (-1e-2, -1e-4, 0.0, 1e-4, 1e-2)]
    even = [low, low + width / 3, low + 2 * width / 3, high]
    return np.sort(np.clip([*near, *even], low, high))


def scaled_state(state: MixedState, arrays: Any) -> MixedState:
    rows = float(arrays["rows"])
    if rows <= state.design.width + 1:
        raise Refusal(
            f"{rows:.0f} complete rows are too few for {state.design.width} coefficients",
            where="[analysis]",
            remedy="leave columns out that are often missing, or let more sites take part",
        )
    mean, outcome = np.asarray(arrays["sum"]) / rows, float(arrays["outcome"]) / rows
    spread = np.sqrt(np.maximum(np.asarray(arrays["square"]) / rows - mean**2, 0.0))
    own = math.sqrt(max(float(arrays["outcome_square"]) / rows - outcome**2, 0.0))
    flat = spread <= 1e-9 * np.maximum(np.abs(mean), 1e-300)
    flat[0] = False
    if flat.any() or own == 0:
        name = state.design.formula.outcome if own == 0 else state.design.labels[int(np.argmax(flat))]
        raise Refusal(f"the column {name} has the same value for all patients that count", where="[analysis] formula")
    center, scale = np.append(mean, outcome), np.append(spread, own)
    center[0], scale[0] = 0.0, 1.0
    counts = {key: float(arrays[key]) for key in ("rows", "dropped", "silent")}
    return state._replace(center=center, scale=scale, counts=counts)


def residual(triangle: Any) -> tuple[Any, float]:
    """The best coefficients for these sums, and what they leave."""
    x, xy, yy = triangle[:-1, :-1], triangle[:-1, -1], float(triangle[-1, -1])
    beta = solve(x, xy)
    return beta, yy - float(beta @ xy)


def profile(triangle: Any, logs: float, rows: float, method: str) -> float:
    """Minus twice the log-likelihood of a ratio, the variance within sites at its best; up to a constant."""
    width = len(triangle) - 1
    _, left = residual(triangle)
    if method == "ml":
        return rows * math.log(left / rows) + logs
    sign, value = np.linalg.slogdet(triangle[:-1, :-1])
    return (rows - width) * math.log(left / (rows - width)) + logs + float(sign * value)


def findings_of(state: MixedState, formula: str, method: str, per: Any, level: float) -> Findings:
    assert state.sums is not None, "nothing was found yet"
    assert state.best is not None, "nothing was found yet"
    design, rows, triangle = state.design, state.counts["rows"], state.sums["triangle"]
    beta, left = residual(triangle)
    df = rows if method == "ml" else rows - design.width
    within = left / df
    outcome = float(state.scale[-1])
    back = np.diag(outcome / state.scale[:-1])
    back[0, 1:] = -(outcome * state.center[:-1] / state.scale[:-1])[1:]
    found = back @ beta
    found[0] += float(state.center[-1])
    covariance = back @ (inverse(triangle[:-1, :-1]) * within) @ back.T
    errors = np.sqrt(np.diag(covariance))
    sigma2, tau2 = within * outcome**2, state.best * within * outcome**2
    far = float(stats.norm.ppf((1 + level) / 2))
    effects = [
        Effect(value, value - far * error, value + far * error, float(2 * stats.norm.sf(abs(value / error))))
        for value, error in zip(found, errors, strict=True)
    ]
    # Constants of the likelihood, and of the outcome that was scaled.
    constant = df * (math.log(2 * math.pi) + 1) + 2 * df * math.log(outcome)
    scale = 2 * float(np.log(state.scale[1:-1]).sum()) if method == "reml" else 0.0
    loglik = -(state.sums["loss"] + constant + scale) / 2
    share = tau2 / (tau2 + sigma2)
    units = units_of(per, design)
    words = [
        sentence(column, effect, design=design, agreed=state.agreed, ratio="", units=units)
        for column, effect in zip(design.columns, effects, strict=True)
        if column.label != INTERCEPT
    ]
    words += [
        f"Sites differ: {100 * share:.3g} % of what the columns leave of the variance of {design.formula.outcome} lies "
        f"between sites (variance {tau2:.4g} between, {sigma2:.4g} within).",
        f"From {rows:,.0f} complete rows; {state.counts['dropped']:,.0f} rows with a missing value were left out.",
    ]
    if state.counts["silent"]:
        words.append(
            f"{state.counts['silent']:.0f} sites added nothing: too few patients, or too small groups of them."
        )
    table = FoundTable(
        "coefficients",
        "Coefficients",
        ("term", "coefficient", f"{100 * level:g} % low", "high", "p", "standard error"),
        [[label, *one, float(error)] for label, one, error in zip(design.labels, effects, errors, strict=True)],
    )
    shown = [
        {"name": label, "value": one.value, "low": one.low, "high": one.high, "null": 0.0}
        for label, one in zip(design.labels, effects, strict=True)
        if label != INTERCEPT
    ]
    chart = FoundChart("effects", "Effects with their intervals", "forest", shown, f"in {design.formula.outcome}")
    numbers = {
        "formula": formula,
        "method": method,
        "coefficients": dict(zip(design.labels, map(float, found), strict=True)),
        "errors": dict(zip(design.labels, map(float, errors), strict=True)),
        "within": sigma2,
        "between": tau2,
        "share_between": share,
        "loglik": loglik,
        "rows": rows,
        "dropped": state.counts["dropped"],
    }
    return Findings(words, [table], [chart] if shown else [], numbers)
