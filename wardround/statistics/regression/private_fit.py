"""Linear regression under [privacy]: one noised exchange of sums over clipped columns; intervals include the noise.

Sufficient statistics perturbation (Vu and Slavkovic 2009; Wang, "Revisiting differentially private linear regression",
UAI 2018). Every column, the outcome too, is clipped to its declared range and scaled to -1 .. 1, so that one patient
changes the sums of all products by at most sqrt(d (d + 1) / 2) for d columns with the intercept. Each site adds its
noise itself, once. The price of many columns is high: noise is shared by all products.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from wardround.core.analysis import NOISE, Agreed, Analysis, Findings, FoundChart, FoundTable
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.regression.design import INTERCEPT, Design, design_of, packed, rows_of, unpacked
from wardround.statistics.regression.effects import Effect, sentence, units_of
from wardround.statistics.regression.formula import Formula, parse_formula

CLEAR = 4.0
"""The smallest eigenvalue of the summed products, in deviations of the noise of a matrix, that is still a fit."""


class NoisedState(NamedTuple):
    """What is known so far."""

    design: Design
    agreed: Agreed
    sums: Any = None
    noise: float = 0.0
    """Standard deviation of the noise in each of the summed products."""


def private_fit(
    *, formula: str, ranges: tuple[str, ...], per: tuple[str, ...], level: float, most_parameters: int
) -> Analysis:
    """Least squares from sums of clipped columns, which [privacy] can noise."""
    parsed, known = parse_formula(formula), ranges_of(ranges)
    refuse_formula(parsed)

    def design_for(agreed: Agreed) -> Design:
        design = design_of(parsed, agreed)
        refuse_ranges(design, agreed, known, most_parameters)
        return design

    def begin(agreed: Agreed) -> Tree:
        return NoisedState(design_for(agreed), agreed)

    def message(state: NoisedState) -> Message | None:
        return Message({"stage": np.array(1.0)}) if state.sums is None else None

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        design = design_for(agreed)
        rows = rows_of(design, agreed, site.table, {})
        middle, half = scales_of(design, known)
        z = np.clip((np.column_stack([rows.x, rows.y]) - middle) / half, -1.0, 1.0)
        return Message({"triangle": packed(z.T @ z)})

    def step(state: NoisedState, told: Message) -> Tree:
        width = state.design.width + 1
        return state._replace(
            sums=unpacked(np.asarray(told.arrays["triangle"]), width), noise=float(told.arrays.get(NOISE, 0.0))
        )

    def report(state: NoisedState) -> Report:
        return findings_of(state, known, formula, per, level).report()

    def sensitivity(agreed: Agreed) -> float:
        width = design_for(agreed).width + 1
        return math.sqrt(width * (width + 1) / 2)

    return Analysis(parsed.columns, begin, message, ask, step, report, most=1, sensitivity=sensitivity)


def refuse_formula(parsed: Formula) -> None:
    """Noise is reckoned for columns as they are."""
    simple = all(len(term) == 1 and term[0].function in ("", "category") for term in parsed.terms)
    if not simple or parsed.offsets or not parsed.intercept:
        raise Refusal(
            "with ranges a regression takes an intercept and columns, and no products, functions or offsets",
            where="[analysis] formula",
            remedy="leave them out, or do without ranges and [privacy]",
        )


def refuse_ranges(
    design: Design, agreed: Agreed, known: dict[str, tuple[float, float]], most: int, *, outcome: bool = True
) -> None:
    """Every column of numbers needs a range; of a class the outcome has one by itself."""
    names = [name for name in design.formula.columns if outcome or name != design.formula.outcome]
    missing = [name for name in names if agreed.columns[name].kind == "number" and name not in known]
    if missing:
        raise Refusal(
            f"column {missing[0]!r} has no declared range, and noise must cover all that a patient can be",
            where="[analysis] ranges",
            remedy=f'add "{missing[0]} = LOW to HIGH", from what is known without looking at patients',
        )
    if design.width > most:
        raise Refusal(f"the formula has {design.width} coefficients, and {most} are allowed")


def ranges_of(said: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """From "age = 18 to 90" to its ends."""
    found = {}
    for words in said:
        name, _, ends = (part.strip() for part in words.partition("="))
        low, _, high = ends.partition(" to ")
        try:
            found[name] = (float(low), float(high))
        except ValueError:
            found[name] = (0.0, 0.0)
        if not -math.inf < found[name][0] < found[name][1] < math.inf:
            raise Refusal(
                f"{words!r} is no range", where="[analysis] ranges", remedy='write it like ranges = ["age = 18 to 90"]'
            )
    return found


def scales_of(design: Design, known: dict[str, tuple[float, float]]) -> tuple[Any, Any]:
    """Middle and half of every column's range; levels and the intercept stay 0 and 1."""
    names = [*(one.label for one in design.columns), design.formula.outcome]
    ends = [
        (-1.0, 1.0) if at == 0 or (at <= len(design.columns) - 1 and design.columns[at].levels) else known[name]
        for at, name in enumerate(names)
    ]
    return np.array([(low + high) / 2 for low, high in ends]), np.array([(high - low) / 2 for low, high in ends])


def findings_of(
    state: NoisedState, known: dict[str, tuple[float, float]], formula: str, per: Any, level: float
) -> Findings:
    design, sums, noise = state.design, state.sums, state.noise
    width = design.width
    a, b, yy = sums[:width, :width], sums[:width, -1], float(sums[-1, -1])
    rows = float(a[0, 0])
    smallest = float(np.linalg.eigvalsh(a)[0])
    if smallest <= CLEAR * noise * math.sqrt(width) or rows <= width + 1:
        raise Refusal(
            "the noise is larger than what the patients tell: some combination of columns varies less than it",
            where="[privacy]",
            remedy="allow a larger epsilon, declare narrower ranges, leave columns out, or let more sites take part",
        )
    inverse = np.linalg.inv(a)
    beta = inverse @ b
    within = max((yy - 2 * beta @ b + beta @ a @ beta) / (rows - width), 0.0)
    # A beta = b with noise E in A and e in b moves beta by A^-1 (e - E beta), whose covariance is this.
    shaken = noise**2 * ((1 + beta @ beta) * np.eye(width) + np.outer(beta, beta) - np.diag(beta**2))
    covariance = within * inverse + inverse @ shaken @ inverse
    middle, half = scales_of(design, known)
    back = np.diag(half[-1] / half[:-1])
    back[0, 1:] = -(half[-1] * middle[:-1] / half[:-1])[1:]
    found = back @ beta
    found[0] += middle[-1]
    errors = np.sqrt(np.diag(back @ covariance @ back.T))
    plain = np.sqrt(np.diag(back @ (within * inverse) @ back.T))
    far = float(stats.norm.ppf((1 + level) / 2))
    effects = [
        Effect(value, value - far * error, value + far * error, float(2 * stats.norm.sf(abs(value / error))))
        for value, error in zip(found, errors, strict=True)
    ]
    units = units_of(per, design)
    words = [
        sentence(column, effect, design=design, agreed=state.agreed, ratio="", units=units)
        for column, effect in zip(design.columns, effects, strict=True)
        if column.label != INTERCEPT
    ]
    share = float(np.mean(1 - (plain / errors) ** 2)) if noise else 0.0
    words.append(
        f"From about {rows:,.0f} complete rows, clipped to the declared ranges; {100 * share:.0f} % of the uncertainty "
        "is the noise that protects patients, and the intervals include it."
    )
    table = FoundTable(
        "coefficients",
        "Coefficients, with noise",
        ("term", "coefficient", f"{100 * level:g} % low", "high", "p", "standard error", "of it without noise"),
        [
            [label, *one, float(error), float(less)]
            for label, one, error, less in zip(design.labels, effects, errors, plain, strict=True)
        ],
    )
    shown = [
        {"name": label, "value": one.value, "low": one.low, "high": one.high, "null": 0.0}
        for label, one in zip(design.labels, effects, strict=True)
        if label != INTERCEPT
    ]
    chart = FoundChart("effects", "Effects with their intervals", "forest", shown, f"in {design.formula.outcome}")
    numbers = {
        "formula": formula,
        "coefficients": dict(zip(design.labels, map(float, found), strict=True)),
        "errors": dict(zip(design.labels, map(float, errors), strict=True)),
        "noise": noise,
        "rows": rows,
    }
    return Findings(words, [table], [chart] if shown else [], numbers)
