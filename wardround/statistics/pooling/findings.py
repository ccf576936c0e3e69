"""What a meta-analysis tells, in the words and units of its measure: ratios as ratios, not as logarithms."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wardround.core.analysis import Findings, FoundTable
from wardround.core.contracts import Report
from wardround.core.errors import Refusal
from wardround.statistics.charts import forest, funnel
from wardround.statistics.pooling.random_effects import (
    BetweenSites,
    Pooled,
    Spread,
    between,
    egger,
    heterogeneity,
    pooled,
    prediction,
)
from wardround.statistics.pooling.site_estimates import LOGARITHMIC, EffectQuestion, SiteEstimate
from wardround.statistics.sentences import evidence, figure, interval_text, listed, named, p_text, percent

NAMES = {
    "mean": "mean",
    "mean_difference": "mean difference",
    "standardized_difference": "standardized difference",
    "odds_ratio": "odds ratio",
    "risk_ratio": "risk ratio",
    "risk_difference": "risk difference",
    "correlation": "correlation",
    "adjusted_difference": "adjusted difference",
    "adjusted_odds_ratio": "adjusted odds ratio",
    "published": "effect",
}
FEW = 10
"""Estimates below which Egger's test finds little (Sterne et al. 2011)."""


def shown_scale(measure: str) -> tuple[Callable[[float], float], float]:
    """From the scale of computing to that of reading, and where there is no effect."""
    if measure in LOGARITHMIC:
        return math.exp, 1.0
    return (math.tanh if measure == "correlation" else float), 0.0


def pooled_findings(
    asked: EffectQuestion,
    mine: Sequence[SiteEstimate],
    beside: Sequence[SiteEstimate],
    method: Spread,
    *,
    adjust: bool,
    per_unit: bool,
) -> Report:
    """`per_unit`: the exposure is a number, so the effect is that of one unit more."""
    used = [one for one in (*mine, *beside) if math.isfinite(one.effect)]
    if not used:
        raise Refusal(
            "no site could estimate the effect",
            remedy="a group, an outcome or a whole site may be too small: look at the sites' tables, or lower"
            " smallest_cell where they allow it",
        )
    y, v = np.array([one.effect for one in used]), np.array([one.variance for one in used])
    spread = between(y, v, method)
    fixed, random = pooled(y, v, 0.0), pooled(y, v, spread, adjust=adjust)
    around = prediction(random, spread, len(y))
    varied = heterogeneity(y, v, spread)
    lopsided = egger(y, v)
    silent = [one.name for one in mine if not math.isfinite(one.effect)]
    words = words_of(asked, used, fixed, random, around, varied, silent, per_unit)
    if lopsided is not None:
        few = f" With {len(y)} estimates (fewer than {FEW}) it finds little." if len(y) < FEW else ""
        said = "is lopsided" if lopsided.p < 0.05 else "shows no clear asymmetry"
        words.append(f"The funnel {said} (Egger's test {p_text(lopsided.p)}).{few}")
    numbers = {
        "estimates": [finite(one._asdict()) for one in (*mine, *beside)],
        "fixed": finite(fixed._asdict()),
        "random": finite(random._asdict()),
        "prediction": list(around) if math.isfinite(around[0]) else None,
        "heterogeneity": finite(varied._asdict()),
        "egger": None if lopsided is None else lopsided._asdict(),
        "method": method,
    }
    charts = charts_of(asked, used, random, fixed, spread)
    return Findings(words, [table_of(asked, used, random, fixed, spread)], charts, numbers).report()


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: what is not known is none."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def words_of(
    asked: EffectQuestion,
    used: Sequence[SiteEstimate],
    fixed: Pooled,
    random: Pooled,
    around: tuple[float, float],
    varied: BetweenSites,
    silent: Sequence[str],
    per_unit: bool,
) -> list[str]:
    shown, _ = shown_scale(asked.measure)
    name = NAMES[asked.measure]
    whose, what_of = named(asked.exposure, asked.exposed), named(asked.outcome, asked.event)
    of = f" of {what_of}" if what_of else ""
    by = f" for {whose}" if whose else ""
    patients = sum(one.patients for one in used)
    whom = f"{len(used)} {'estimate' if len(used) == 1 else 'estimates'}"
    whom += f" ({patients} patients)" if patients else ""
    says = "" if asked.measure == "mean" else f": {evidence(random.p).replace('a difference', 'an effect')}"
    words = [
        f"The {name}{of}{by} over {whom} is {figure(shown(random.effect))} (95 % interval"
        f" {interval_text(shown(random.low), shown(random.high))}, {p_text(random.p)}; random effects){says}."
    ]
    if asked.measure in ("odds_ratio", "adjusted_odds_ratio", "risk_ratio"):
        change = shown(random.effect) - 1
        what = "odds are" if "odds" in asked.measure else "risk is"
        unit = "per unit of" if per_unit else "with"
        way = "higher" if change > 0 else "lower"
        words.append(f"That is, {unit} {whose} the {what} {percent(abs(change))} {way}.")
    if len(used) == 1:
        words.append("There is one estimate only, so nothing is known of differences between sites.")
    else:
        low, high = (figure(math.sqrt(one)) for one in (varied.tau2_low, varied.tau2_high))
        words.append(
            f"The estimates differ {how_much(varied.i2)}: I² {percent(varied.i2)}, τ {figure(math.sqrt(varied.tau2))}"
            f" (95 % interval {low} to {high}), Q {figure(varied.q)} with {p_text(varied.p)}. If all sites had the same"
            f" effect (fixed effect), it would be {figure(shown(fixed.effect))}"
            f" ({interval_text(shown(fixed.low), shown(fixed.high))})."
        )
    if random.error < fixed.error and len(used) > 1:
        words.append(
            "The interval of random effects is narrower than that of a fixed effect, since the estimates agree better"
            " than chance makes them (Hartung and Knapp's adjustment): trust the wider one."
        )
    if math.isfinite(around[0]):
        words.append(
            f"At a new site the effect is expected between {figure(shown(around[0]))} and {figure(shown(around[1]))}"
            " (95 % prediction interval)."
        )
    if silent:
        words.append(
            f"No estimate from {listed(silent)}: a group or an outcome that nobody has (or all of a group), or fewer"
            " patients than may be told about."
        )
    corrected = [one.name for one in used if one.is_corrected]
    if corrected:
        words.append(f"At {listed(corrected)} a cell of the table is 0, so 0.5 was added to all four.")
    return words


def how_much(i2: float) -> str:
    """Higgins' rough words for I2."""
    return "little" if i2 < 0.25 else "moderately" if i2 < 0.5 else "considerably" if i2 < 0.75 else "greatly"


def lines(
    asked: EffectQuestion, used: Sequence[SiteEstimate], random: Pooled, fixed: Pooled, spread: float
) -> list[dict[str, Any]]:
    shown, _ = shown_scale(asked.measure)
    weights = np.array([1 / (one.variance + spread) for one in used])
    rows = []
    for one, weight in zip(used, weights / weights.sum(), strict=True):
        reach = 1.959963984540054 * math.sqrt(one.variance)
        rows.append(
            {
                "name": one.name,
                "value": shown(one.effect),
                "low": shown(one.effect - reach),
                "high": shown(one.effect + reach),
                "weight": float(weight),
            }
        )
    for label, of in (("random effects", random), ("fixed effect", fixed)):
        rows.append({"name": label, "value": shown(of.effect), "low": shown(of.low), "high": shown(of.high)})
        rows[-1] |= {"weight": None, "summary": True}
    return rows


def table_of(
    asked: EffectQuestion, used: Sequence[SiteEstimate], random: Pooled, fixed: Pooled, spread: float
) -> FoundTable:
    rows = lines(asked, used, random, fixed, spread)
    patients = [*(one.patients or None for one in used), None, None]
    return FoundTable(
        "estimates",
        f"The {NAMES[asked.measure]} at each site, with its weight in the random-effects mean.",
        ["site", NAMES[asked.measure], "low", "high", "weight", "patients"],
        [[r["name"], r["value"], r["low"], r["high"], r["weight"], n] for r, n in zip(rows, patients, strict=True)],
    )


def charts_of(
    asked: EffectQuestion, used: Sequence[SiteEstimate], random: Pooled, fixed: Pooled, spread: float
) -> list[Any]:
    _, none = shown_scale(asked.measure)
    no_effect = None if asked.measure == "mean" else none
    name = NAMES[asked.measure]
    log = f"log {name}" if asked.measure in LOGARITHMIC else "Fisher's z" if asked.measure == "correlation" else name
    points = [{"name": one.name, "value": one.effect, "error": math.sqrt(one.variance)} for one in used]
    rows = lines(asked, used, random, fixed, spread)
    return [
        forest("forest", f"The {name} site by site", rows, name, null=no_effect, log=asked.measure in LOGARITHMIC),
        funnel("funnel", "Effects against their standard errors", points, fixed.effect, log),
    ]
