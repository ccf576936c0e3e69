"""A Cox regression as findings: effects in words, tests, checks, sites and predictions."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2, norm

from wardround.analyses.survival.covariates import Covariate
from wardround.analyses.survival.cox_sums import pairs_from
from wardround.analyses.survival.survey import Survey, survey_words
from wardround.analyses.survival.words import (
    Unit,
    change_words,
    effect_sentence,
    of_time,
    p_words,
    percent,
    readable_unit,
    unit_of,
)
from wardround.core.analysis import Agreed, Findings, FoundChart, FoundTable
from wardround.statistics.sentences import figure
from wardround.statistics.survival.binned_likelihood import (
    IntervalSums,
    binned_likelihood,
    binned_trend,
    merged_in_pairs,
)
from wardround.statistics.survival.heterogeneity import heterogeneity_of
from wardround.statistics.survival.life_table import at_time, share
from wardround.statistics.survival.newton import Ascent
from wardround.statistics.survival.partial_likelihood import Ties, TrendSums

Values = np.ndarray[Any, Any]
Row = list[str | float | int | None]
Z = float(norm.ppf(0.975))
MARGIN = 3.0
"""Errors were at most 2.4 times the step to intervals twice as wide, on three real tables and 50 to 400 intervals."""
MOST_SENTENCES = 12
"""Columns up to which each has its sentence, whether its effect is clear or not."""


class Closed(NamedTuple):
    """The last answers: added up, and by site where these were asked for."""

    arrays: Mapping[str, Values]
    by_name: Mapping[str, Mapping[str, Values]]


class CoxFit(NamedTuple):
    """A finished fit, on the scale of standardised columns."""

    agreed: Agreed
    design: tuple[Covariate, ...]
    ascent: Ascent
    survey: Survey
    center: Values
    scale: Values
    binary: tuple[bool, ...]
    edges: Values
    sums: tuple[IntervalSums, ...]
    closed: Closed
    units: Mapping[str, str]
    by_site: bool
    strata: tuple[str, ...]
    ties: Ties
    penalty: float
    robust: bool
    horizons: tuple[float, ...]
    unit: str
    hold_out: str
    cell: int
    clock: Values

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.design]

    @property
    def information(self) -> Values:
        assert self.ascent.found is not None
        return self.ascent.found.information

    @property
    def covariance(self) -> Values:
        """Of the standardised coefficients; robust where asked for."""
        inverse = np.linalg.inv(self.information)
        return inverse @ self.closed.arrays["meat"] @ inverse if self.robust else inverse

    def unit_at(self, place: int) -> Unit:
        """By how much a column changes in its sentence."""
        one = self.design[place]
        if one.level or self.binary[place]:
            return Unit()
        return unit_of(self.units[one.column]) if one.column in self.units else readable_unit(float(self.scale[place]))


def cox_findings(fit: CoxFit) -> Findings:
    """Everything: the answer first."""
    beta, error = fit.ascent.best / fit.scale, np.sqrt(np.diag(fit.covariance)) / fit.scale
    effects, table, forest = effect_table(fit, beta, error)
    tests = tests_of(fit)
    trend, trend_words = trend_tests(fit)
    sites, site_words, site_tables, site_charts = sites_of(fit)
    base, base_words = baseline_of(fit)
    pairs, pair_words = concordance_of(fit)
    general = [
        f"At least one effect is real: {p_words(tests['likelihood_ratio']['p_value'])} (likelihood ratio)."
        if tests["likelihood_ratio"]["p_value"] < 0.05
        else f"All effects together may be chance: {p_words(tests['likelihood_ratio']['p_value'])} (likelihood ratio)."
    ]
    rounding, rounding_words = rounding_of(fit)
    words = [*effects, *base_words, *pair_words, *general, *trend_words, *site_words, *rounding_words]
    words += survey_words(fit.survey, len(fit.agreed.sites), fit.cell) + method_words(fit)
    rows: list[Row] = [[name, one["statistic"], one["freedom"], one["p_value"]] for name, one in tests.items()]
    checks: list[Row] = [[name, one["statistic"], one["freedom"], one["p_value"]] for name, one in trend.items()]
    tables = [
        table,
        FoundTable("tests", "Tests of all effects together", ["test", "chi-square", "freedom", "p"], rows),
        FoundTable("proportional", "Do effects change with time?", ["column", "chi-square", "freedom", "p"], checks),
        *site_tables,
    ]
    assert fit.ascent.found is not None
    assert fit.ascent.null is not None
    numbers = {
        "columns": fit.names,
        "coefficients": beta.tolist(),
        "standard_errors": error.tolist(),
        "covariance": (fit.covariance / np.outer(fit.scale, fit.scale)).tolist(),
        "log_likelihood": fit.ascent.found.value,
        "log_likelihood_null": fit.ascent.null.value,
        "center": fit.center.tolist(),
        "steps": fit.ascent.evaluations,
        "tests": tests,
        "proportional": trend,
        "heterogeneity": sites,
        "concordance": pairs,
        "baseline": base,
        "rounding": rounding,
        "patients": fit.survey.patients,
        "events": fit.survey.events,
    }
    return Findings(words, tables, [forest, *site_charts], numbers)


def effect_table(fit: CoxFit, beta: Values, error: Values) -> tuple[list[str], FoundTable, FoundChart]:
    """A sentence, a row and a bar for every column."""
    told: list[tuple[float, str]] = []
    rows: list[Row] = []
    bars: list[dict[str, Any]] = []
    for place, one in enumerate(fit.design):
        unit, b, e = fit.unit_at(place), float(beta[place]), float(error[place])
        ratio, low, high = (float(np.exp(unit.step * (b + side * Z * e))) for side in (0, -1, 1))
        change = change_words(ratio, min(low, high), max(low, high))
        sentence = effect_sentence(one.column, one.level, one.reference, unit, fit.binary[place], change)
        p_value = float(2 * norm.sf(abs(b / e)))
        if len(fit.design) <= MOST_SENTENCES or not low < 1 < high:
            told.append((-abs(b / e), sentence))
        per = unit.words if not (one.level or fit.binary[place]) else ""
        against = per or (f"instead of {one.reference}" if one.level else "1 instead of 0")
        rows.append([one.name, against, ratio, low, high, p_value, b, e])
        bars.append(
            {
                "name": f"{one.name}, per {per}" if per else one.name,
                "value": ratio,
                "low": low,
                "high": high,
                "null": 1.0,
                "log": True,
            }
        )
    words = [sentence for _, sentence in sorted(told)]  # the clearest effect first
    if len(words) < len(fit.design):
        words.append(f"The other {len(fit.design) - len(words)} columns have no clear effect.")
    columns = ["column", "per", "hazard ratio", "low", "high", "p", "coefficient", "standard error"]
    table = FoundTable("effects", "Hazard ratios with 95 % intervals", columns, rows)
    chart = FoundChart("effects", "Hazard ratios with 95 % intervals", "forest", bars, x="hazard ratio", y="")
    return words, table, chart


def chi_square(statistic: float, freedom: int) -> dict[str, Any]:
    return {"statistic": statistic, "freedom": freedom, "p_value": float(chi2.sf(statistic, freedom))}


def tests_of(fit: CoxFit) -> dict[str, dict[str, Any]]:
    """Whether all effects together are none: likelihood ratio, Wald, score."""
    assert fit.ascent.found is not None
    assert fit.ascent.null is not None
    beta, null = fit.ascent.best, fit.ascent.null
    ratio = 2 * (fit.ascent.found.value - null.value)
    wald = float(beta @ np.linalg.solve(fit.covariance, beta))
    score = float(null.score @ np.linalg.solve(null.information, null.score))
    named = {"likelihood_ratio": ratio, "wald": wald, "score": score}
    return {name: chi_square(max(one, 0.0), len(beta)) for name, one in named.items()}


def trend_tests(fit: CoxFit) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Whether effects change with time (Grambsch and Therneau), for each column and for all."""
    arrays = fit.closed.arrays
    if fit.by_site:
        sums = TrendSums(*(arrays[name] for name in ("trend_score", "trend_crossed", "trend_information")))
    else:
        factor = (fit.edges - fit.clock[0]) / fit.clock[1]
        each = [binned_trend(one, factor, fit.ties) for one in fit.sums]
        sums = TrendSums(*(np.sum([one[place] for one in each], axis=0) for place in range(3)))
    rest = sums.information - sums.crossed.T @ np.linalg.solve(fit.information, sums.crossed)
    found: dict[str, dict[str, Any]] = {}
    for place, name in enumerate(fit.names):
        own = float(rest[place, place])
        if own > 1e-9:
            found[name] = chi_square(float(sums.score[place] ** 2 / own), 1)
    together = float(sums.score @ np.linalg.lstsq(rest, sums.score, rcond=1e-9)[0])
    found["all"] = chi_square(max(together, 0.0), len(fit.names))
    changed = [name for name, one in found.items() if name != "all" and one["p_value"] < 0.05]
    if not changed:
        return found, [f"No effect clearly changes with time ({p_words(found['all']['p_value'])} for all together)."]
    named = ", ".join(f"{name} ({p_words(found[name]['p_value'])})" for name in changed)
    return found, [f"These effects change with time, so read them as averages: {named}."]


def sites_of(fit: CoxFit) -> tuple[dict[str, Any], list[str], list[FoundTable], list[FoundChart]]:
    """How much effects differ between sites, from sums; and each site's own estimates where they were asked for."""
    found: dict[str, Any] = {}
    words: list[str] = []
    rows: list[Row] = []
    for place, name in enumerate(fit.names):
        one = heterogeneity_of(fit.closed.arrays["own"][:, place])
        tau = None if one.tau_squared is None else one.tau_squared / float(fit.scale[place]) ** 2
        found[name] = {**one._asdict(), "tau_squared": tau}
        rows.append([name, one.sites, one.q, one.p_value, one.i_squared, tau])
        if one.i_squared is not None and one.p_value is not None and (one.i_squared >= 0.5 or one.p_value < 0.05):
            size = f"I² {percent(one.i_squared)}, tau² {figure(tau)}, {p_words(one.p_value)}"
            verb = "differs" if one.p_value < 0.05 else "may differ"
            words.append(f"The effect of {name} {verb} between sites ({size}).")
    known = [one["i_squared"] for one in found.values() if one["i_squared"] is not None]
    if known and not words:
        words.append(f"The sites agree about the effects (I² at most {percent(max(known))}).")
    if not known:
        words.append("Too few sites can estimate the effects by themselves to say whether they agree.")
    columns = ["column", "sites", "Q", "p", "I²", "tau²"]
    tables = [FoundTable("sites_agree", "Do sites agree?", columns, rows)]
    charts: list[FoundChart] = []
    if fit.closed.by_name:
        each: list[Row] = []
        for place, name in enumerate(fit.names):
            bars, step = [], fit.unit_at(place).step
            for site, arrays in fit.closed.by_name.items():
                weight, first = float(arrays["own"][1, place]), float(arrays["own"][2, place])
                if not weight:
                    each.append([name, site, None, None, None])
                    continue
                b, e = (one * step / float(fit.scale[place]) for one in (first / weight, weight**-0.5))
                ratio, low, high = (float(np.exp(b + side * Z * e)) for side in (0, -1, 1))
                each.append([name, site, ratio, min(low, high), max(low, high)])
                bars.append(
                    {"name": site, "value": ratio, "low": min(low, high), "high": max(low, high), "weight": weight}
                )
            bars.append(pooled_bar(fit, place, step))
            charts.append(
                FoundChart(f"sites_{name}", f"Hazard ratio of {name}, site by site", "forest", bars, x="hazard ratio")
            )
        tables.append(
            FoundTable(
                "by_site",
                "Hazard ratios of each site's own fit",
                ["column", "site", "hazard ratio", "low", "high"],
                each,
            )
        )
    return found, words, tables, charts


def pooled_bar(fit: CoxFit, place: int, step: float) -> dict[str, Any]:
    """The common effect below those of the sites."""
    b, e = (
        float(one[place]) * step / float(fit.scale[place])
        for one in (fit.ascent.best, np.sqrt(np.diag(fit.covariance)))
    )
    ratio, low, high = (float(np.exp(b + side * Z * e)) for side in (0, -1, 1))
    return {
        "name": "all sites",
        "value": ratio,
        "low": min(low, high),
        "high": max(low, high),
        "summary": True,
        "null": 1.0,
        "log": True,
    }


def concordance_of(fit: CoxFit) -> tuple[dict[str, Any], list[str]]:
    """Harrell's C over pairs of patients of the same site."""
    found: dict[str, Any] = {}
    words = []
    heads = {"pairs": "", "held": f" among the patients held out ({fit.hold_out})"}
    for key, where in heads.items():
        if key not in fit.closed.arrays:
            continue
        pairs = pairs_from(fit.closed.arrays[key])
        by_name = {site: pairs_from(one[key]).c_index for site, one in fit.closed.by_name.items()}
        found["fitted" if key == "pairs" else "held_out"] = {
            **pairs._asdict(),
            "c_index": pairs.c_index,
            "by_site": by_name,
        }
        if pairs.c_index is not None:
            words.append(
                f"Of two patients of a site{where}, the one with the higher predicted hazard has the event first in"
                f" {percent(pairs.c_index)} of the pairs that can be compared (C-index {pairs.c_index:.3f})."
            )
    return found, words


def baseline_of(fit: CoxFit) -> tuple[dict[str, Any], list[str]]:
    """The hazard of a patient who is average in every column, and what it means at the horizons."""
    if not fit.horizons:
        return {}, []
    if fit.by_site:
        left, events = fit.closed.arrays["base_left"], fit.closed.arrays["base_events"]
    else:
        left = np.sum([one.left[:, 0] for one in fit.sums], axis=0)
        events = np.sum([one.events for one in fit.sums], axis=0)
    at_risk = np.cumsum(left[::-1])[::-1][:-1]
    hazard = np.cumsum(share(events, at_risk))
    words, found = [], []
    for at in fit.horizons:
        total = at_time(fit.edges, hazard, at, 0.0)
        found.append({"time": at, "hazard": total, "survival": float(np.exp(-total))})
        chance = percent(float(np.exp(-total)))
        words.append(
            f"A patient who is average in every column has a chance of {chance} to be without the event after"
            f" {of_time(at, fit.unit)}."
        )
    return {"edges": fit.edges.tolist(), "hazard": hazard.tolist(), "horizons": found}, words


def rounding_of(fit: CoxFit) -> tuple[dict[str, Any] | None, list[str]]:
    """How far intervals twice as wide would move the coefficients, by one Newton step, with a margin."""
    if fit.by_site:
        return None, []
    merged = [binned_likelihood(merged_in_pairs(one), fit.ascent.best, fit.ties) for one in fit.sums]
    ridge = fit.penalty * fit.survey.patients
    score = np.sum([one.score for one in merged], axis=0) - ridge * fit.ascent.best
    information = np.sum([one.information for one in merged], axis=0) + ridge * np.eye(len(fit.names))
    shift = np.linalg.solve(information, score)
    in_errors = MARGIN * np.abs(shift) / np.sqrt(np.diag(np.linalg.inv(fit.information)))
    worst = int(np.argmax(in_errors))
    words = (
        f"Times were counted in {len(fit.edges) - 1} intervals, which moves the effect of {fit.names[worst]} most: by"
        f" about {figure(float(in_errors[worst]), 2)} of its standard error at most."
    )
    blur = float(fit.closed.arrays["blur"]) / fit.survey.patients
    if blur:
        words += (
            f" A site tells of at least {fit.cell} patients and events at once, so that times are spread over"
            f" {of_time(blur, fit.unit)} on average, which draws effects towards none; by_site = true needs no"
            " intervals."
        )
    return {"shift": (shift / fit.scale).tolist(), "in_standard_errors": in_errors.tolist()}, [words]


def method_words(fit: CoxFit) -> list[str]:
    """How the fit was made, for whoever repeats it."""
    within = [*(["site"] if fit.by_site else []), *fit.strata]
    words = [
        f"Patients were compared within the same {' and '.join(within)} (each with its own baseline hazard)."
        if within
        else "Patients of all sites were compared with each other (one baseline hazard)."
    ]
    if fit.penalty:
        words.append(
            f"A ridge penalty of {fit.penalty:g} draws the effects towards none, so that intervals and tests are"
            " approximate."
        )
    if fit.robust:
        words.append("Standard errors are robust (Lin and Wei).")
    few = float(fit.closed.arrays["few"])
    if few and fit.cell > 1:
        words.append(
            f"Sites with fewer than {fit.cell} patients or events, in all or in a group of a column, which were left"
            f" out of the fit: {few:.0f}."
        )
    return words
