"""What a regression found: sentences, a table of coefficients, tests, each site's own fit, and numbers for programs."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from wardround.core.analysis import Findings, FoundChart, FoundTable
from wardround.core.text import counted
from wardround.statistics.regression.course import Course
from wardround.statistics.regression.design import INTERCEPT, natural_spline, places_of, term_label
from wardround.statistics.regression.effects import Effect, scaled, sentence, units_of
from wardround.statistics.regression.estimates import (
    FoundFit,
    TermTest,
    found_fit,
    likelihood_ratio,
    wald_tests,
)
from wardround.statistics.regression.heterogeneity import SpreadOfSites, spread_of_sites

SAID = 12
"""Effects that are told in sentences; all are in the table."""


def findings_of(course: Course, *, formula: str, per: Sequence[str], level: float) -> Findings:
    said, design, sites = course.settings, course.design, len(course.agreed.sites)
    found = found_fit(
        course.fits[0],
        design,
        said.family,
        course.center,
        course.scale,
        sites=sites - (len(course.silent) if isinstance(course.silent, tuple) else course.silent),
        robust=said.robust,
    )
    units = units_of(per, design)
    ratio = ratio_of(course)
    effects = [effect_of(found, at, level) for at in range(design.width)]
    shown = [at for at in range(design.width) if design.labels[at] != INTERCEPT]
    words = [
        sentence(design.columns[at], effects[at], design=design, agreed=course.agreed, ratio=ratio, units=units)
        for at in shown[:SAID]
        if not design.columns[at].label.startswith("spline(")
    ]
    walds, ratios = wald_tests(found, design), ratio_tests(course, found)
    spreads, own = by_site(course) if said.by_site else ({}, {})
    words += [*spline_words(course, walds), *heterogeneity_words(course, spreads), *closing_words(course, found)]
    tables = [coefficient_table(course, found, effects, ratio, level)]
    if walds and len(design.formula.terms) > 0:
        tables.append(test_table("wald", "Wald tests of the terms", course, walds))
    if ratios:
        tables.append(test_table("likelihood_ratio", "Likelihood-ratio tests of the terms", course, ratios))
    if own:
        tables.append(site_table(course, own, spreads))
    if course.tried:
        columns = ("strength", "held-out deviance per patient", "standard error")
        tables.append(FoundTable("strengths", "Strengths of the penalty, by cross-validation", columns, course.tried))
    tables.append(fit_table(course, found))
    charts = charts_of(course, effects, ratio, units, own, spreads, found, level)
    return Findings(words, tables, charts, numbers_of(course, found, effects, walds, ratios, spreads, own, formula))


def ratio_of(course: Course) -> str:
    """What the exponential of a coefficient is called."""
    is_rate = course.settings.link.ratio == "mean" and bool(course.design.formula.offsets)
    return "rate" if is_rate else course.settings.link.ratio


def effect_of(found: FoundFit, at: int, level: float) -> Effect:
    value, error = float(found.beta[at]), float(found.errors[at])
    if not math.isfinite(error) or error <= 0:
        return Effect(value)
    far = found.quantile(level) * error
    return Effect(value, value - far, value + far, found.p_value(value / error))


def ratio_tests(course: Course, found: FoundFit) -> list[TermTest]:
    said, design = course.settings, course.design
    if not said.likelihood_ratio:
        return []
    tests = []
    for term, fit in enumerate(course.fits[1 : 1 + len(design.formula.terms)]):
        if fit.failed or fit.sums is None:
            continue
        without = found_fit(fit, design, said.family, course.center, course.scale)
        tests.append(likelihood_ratio(found, without, term, int((~fit.free).sum())))
    return tests


# ---- site by site ----


def by_site(course: Course) -> tuple[dict[int, SpreadOfSites], dict[str, FoundFit]]:
    """Each site's own fit, and how far they differ in every coefficient."""
    said, design = course.settings, course.design
    fits = {fit.place: fit for fit in course.fits if fit.place >= 0}
    own = {
        course.agreed.sites[place]: found_fit(fit, design, said.family, course.center, course.scale)
        for place, fit in fits.items()
        if not fit.failed and fit.sums is not None and fit.done
    }
    spreads = {}
    for at in range(design.width):
        values = np.array([one.beta[at] for one in own.values()])
        errors = np.array([one.errors[at] for one in own.values()])
        spread = spread_of_sites(values, errors) if len(values) else None
        if spread is not None:
            spreads[at] = spread
    return spreads, own


def heterogeneity_words(course: Course, spreads: dict[int, SpreadOfSites]) -> list[str]:
    told = []
    for at, one in spreads.items():
        label = course.design.labels[at]
        if label == INTERCEPT:
            continue
        differ = "differ" if one.p_value < 0.05 else "do not differ more than by chance"
        told.append(
            f"Sites {differ} in the effect of {label}: I2 = {100 * one.i2:.0f} %, tau2 = {one.tau2:.3g}, "
            f"p = {one.p_value:.3f} over {one.sites} sites."
        )
    return told[:SAID]


def spline_words(course: Course, walds: Sequence[TermTest]) -> list[str]:
    return [
        f"{term_label(course.design, one.term)} {'matters' if one.p_value < 0.05 else 'is not more than chance'} taken "
        f"as a whole (p = {one.p_value:.3g}); its chart shows how."
        for one in walds
        if "spline(" in term_label(course.design, one.term)
    ]


def closing_words(course: Course, found: FoundFit) -> list[str]:
    """How many patients it rests on, who was left out and why."""
    said = course.settings
    family = said.family.name.replace("_", " ")
    told = [
        f"From {found.rows:,.0f} complete rows; {course.dropped:,.0f} rows with a missing value were left out. "
        f"{family.capitalize()} regression, deviance {found.deviance:.6g} on {found.df:.0f} degrees of freedom."
    ]
    if said.finds_alpha:
        told.append(f"The dispersion alpha is {course.fits[0].alpha:.4g} (variance = mean + alpha mean squared).")
    if said.penalty != "none":
        strength = course.fits[0].penalty.strength
        by = f", found by cross-validation over {said.folds} folds" if said.is_tuned else ""
        told.append(
            f"Coefficients are shrunk ({said.penalty}, strength {strength:.3g}{by}), so they have no intervals."
        )
    if said.robust:
        told.append("Errors are robust, clustered by site; with few sites they are uncertain themselves.")
    silent = course.silent
    if silent:
        who = ", ".join(silent) if isinstance(silent, tuple) else counted(silent, "site")
        told.append(
            f"{who} added nothing: too few patients, too few for so many coefficients, or a group of patients smaller "
            "than the smallest cell."
        )
    return told


# ---- tables ----


def coefficient_table(
    course: Course, found: FoundFit, effects: Sequence[Effect], ratio: str, level: float
) -> FoundTable:
    ends = [f"{100 * level:g} % low", "high"]
    rows: list[list[Any]] = []
    for label, one, error in zip(course.design.labels, effects, found.errors, strict=True):
        if ratio:
            rows.append([label, *(exponential(end) for end in one[:3]), one.p_value, one.value, number(error)])
        else:
            rows.append([label, *one[:3], one.p_value, number(error)])
    first = [f"{ratio} ratio", *ends, "p", "coefficient"] if ratio else ["coefficient", *ends, "p"]
    return FoundTable("coefficients", "Coefficients", ["term", *first, "standard error"], rows)


def exponential(value: float | None) -> float | None:
    return None if value is None else math.exp(min(value, 700.0))


def number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def test_table(name: str, caption: str, course: Course, tests: Sequence[TermTest]) -> FoundTable:
    rows: list[list[Any]] = [[term_label(course.design, one.term), *one[1:]] for one in tests]
    return FoundTable(name, caption, ("term", "statistic", "degrees of freedom", "p"), rows)


def site_table(course: Course, own: dict[str, FoundFit], spreads: dict[int, SpreadOfSites]) -> FoundTable:
    rows: list[list[Any]] = []
    for at, label in enumerate(course.design.labels):
        for site in course.agreed.sites:
            fit = own.get(site)
            told = [None, None, None] if fit is None else [float(fit.beta[at]), number(fit.errors[at]), int(fit.rows)]
            rows.append([label, site, *told])
        if at in spreads:
            one = spreads[at]
            rows.append([label, f"random effects (I2 {100 * one.i2:.0f} %)", one.pooled, one.error, None])
    return FoundTable(
        "sites", "Each site's own fit", ("term", "site", "coefficient", "standard error", "complete rows"), rows
    )


def fit_table(course: Course, found: FoundFit) -> FoundTable:
    loglik = number(found.loglik)
    extra = 1 if course.settings.family.dispersed or course.settings.finds_alpha else 0
    rows: list[list[Any]] = [
        ["complete rows", int(found.rows)],
        ["rows left out", int(course.dropped)],
        ["deviance", found.deviance],
        ["degrees of freedom", int(found.df)],
        ["dispersion", found.dispersion],
        ["log-likelihood", loglik],
        ["AIC", None if loglik is None else -2 * loglik + 2 * (found.parameters + extra)],
    ]
    null = null_test(course, found)
    if null is not None:
        rows += [["null deviance", course.null_deviance], ["p, of the whole model", null.p_value]]
    return FoundTable("fit", "The fit", ("figure", "value"), rows)


def null_test(course: Course, found: FoundFit) -> TermTest | None:
    """Against the model that knows the mean outcome only; with an offset that is another one."""
    design, said = course.design, course.settings
    if design.formula.offsets or not design.formula.intercept or course.null_deviance is None:
        return None
    if said.finds_alpha or said.penalty != "none" or design.width < 2:
        return None
    statistic, df = (course.null_deviance - found.deviance) / found.dispersion, design.width - 1
    return TermTest(-1, statistic, df, float(stats.chi2.sf(max(statistic, 0.0), df)))


# ---- charts and numbers ----


def charts_of(
    course: Course,
    effects: Sequence[Effect],
    ratio: str,
    units: dict[str, float],
    own: dict[str, FoundFit],
    spreads: dict[int, SpreadOfSites],
    found: FoundFit,
    level: float,
) -> list[FoundChart]:
    labels = course.design.labels
    axis = f"{ratio} ratio" if ratio else f"difference in {course.design.formula.outcome}"
    none = 1.0 if ratio else 0.0

    def row(name: str, effect: Effect, **more: Any) -> dict[str, Any]:
        ends = [exponential(one) if ratio else one for one in effect[:3]]
        return {
            "name": name,
            "value": ends[0],
            "low": ends[1],
            "high": ends[2],
            "null": none,
            "log": bool(ratio),
            **more,
        }

    shown = [at for at, label in enumerate(labels) if label != INTERCEPT and effects[at].low is not None]
    charts = []
    if shown:
        rows = [row(unit_label(labels[at], units), scaled(effects[at], units.get(labels[at], 1.0))) for at in shown]
        charts.append(FoundChart("effects", "Effects with their intervals", "forest", rows, axis))
    charts += [chart for term in range(len(course.design.formula.terms)) if (chart := curve(course, found, term, axis))]
    for at in shown[:SAID] if own else ():
        unit = units.get(labels[at], 1.0)
        rows = [
            row(site, scaled(effect_of(fit, at, level), unit), weight=1 / fit.errors[at] ** 2)
            for site, fit in own.items()
            if math.isfinite(fit.errors[at]) and fit.errors[at] > 0
        ]
        if at in spreads:
            one = spreads[at]
            far = 1.959964 * one.error
            effect = scaled(Effect(one.pooled, one.pooled - far, one.pooled + far), unit)
            rows.append(row("random effects", effect, summary=True))
        rows.append(row("all rows together", scaled(effects[at], unit), summary=True))
        name = f"site by site: {unit_label(labels[at], units)}"
        charts.append(FoundChart(f"sites {labels[at]}", name, "forest", rows, axis))
    if course.tried:
        strengths, means, errors = (list(part) for part in zip(*course.tried, strict=True))
        line = {
            "name": "held-out deviance",
            "x": [math.log10(one) for one in strengths],
            "y": means,
            "low": [mean - error for mean, error in zip(means, errors, strict=True)],
            "high": [mean + error for mean, error in zip(means, errors, strict=True)],
        }
        charts.append(FoundChart("tuning", "Strength of the penalty", "lines", [line], "log10 strength", "deviance"))
    return charts


def curve(course: Course, found: FoundFit, term: int, axis: str) -> FoundChart | None:
    """A spline of one column, compared with the middle of its knots."""
    variables = course.design.formula.terms[term]
    if len(variables) > 1 or variables[0].function != "spline" or found.covariance is None or not course.knots:
        return None
    knots = np.asarray(course.knots[variables[0].column])
    grid, middle = np.linspace(knots[0], knots[-1], 61), np.array([(knots[0] + knots[-1]) / 2])
    away, at = natural_spline(grid, knots) - natural_spline(middle, knots), places_of(course.design, term)
    value = away @ found.beta[at]
    error = 1.959964 * np.sqrt(np.einsum("ij,jk,ik->i", away, found.covariance[np.ix_(at, at)], away))
    shown = np.exp if course.settings.link.ratio else np.asarray
    line = {"name": variables[0].column, "x": grid.tolist(), "y": shown(value).tolist()}
    line |= {"low": shown(value - error).tolist(), "high": shown(value + error).tolist()}
    name, column = term_label(course.design, term), variables[0].column
    return FoundChart(name, f"{name}, compared with {column} = {middle[0]:.4g}", "lines", [line], column, axis)


def unit_label(label: str, units: dict[str, float]) -> str:
    return f"{label} (per {units[label]:g})" if label in units else label


def numbers_of(
    course: Course,
    found: FoundFit,
    effects: Sequence[Effect],
    walds: Sequence[TermTest],
    ratios: Sequence[TermTest],
    spreads: dict[int, SpreadOfSites],
    own: dict[str, FoundFit],
    formula: str,
) -> dict[str, Any]:
    labels, design = course.design.labels, course.design
    null = null_test(course, found)

    def tests(of: Sequence[TermTest]) -> dict[str, Any]:
        return {
            term_label(design, one.term): {"statistic": one.statistic, "df": one.df, "p_value": one.p_value}
            for one in of
        }

    return {
        "formula": formula,
        "family": course.settings.family.name,
        "coefficients": dict(zip(labels, (float(one) for one in found.beta), strict=True)),
        "errors": dict(zip(labels, (number(one) for one in found.errors), strict=True)),
        "intervals": {label: [one.low, one.high] for label, one in zip(labels, effects, strict=True)},
        "p_values": {label: one.p_value for label, one in zip(labels, effects, strict=True)},
        "covariance": None if found.covariance is None else found.covariance.tolist(),
        "rows": found.rows,
        "dropped": course.dropped,
        "deviance": found.deviance,
        "null_deviance": course.null_deviance if null is not None else None,
        "df": found.df,
        "dispersion": found.dispersion,
        "pearson": found.pearson,
        "loglik": number(found.loglik),
        "alpha": course.fits[0].alpha if course.settings.family.name == "negative_binomial" else None,
        "strength": course.fits[0].penalty.strength if course.settings.penalty != "none" else None,
        "steps": course.fits[0].steps,
        "knots": {name: list(map(float, at)) for name, at in (course.knots or {}).items()},
        "wald": tests(walds),
        "likelihood_ratio": tests(ratios),
        "heterogeneity": {labels[at]: one._asdict() for at, one in spreads.items()},
        "sites": {
            site: {
                "coefficients": dict(zip(labels, map(float, one.beta), strict=True)),
                "errors": dict(zip(labels, (number(error) for error in one.errors), strict=True)),
                "rows": one.rows,
                "deviance": one.deviance,
                "dispersion": one.dispersion,
            }
            for site, one in own.items()
        },
        "silent": list(course.silent) if isinstance(course.silent, tuple) else course.silent,
    }
