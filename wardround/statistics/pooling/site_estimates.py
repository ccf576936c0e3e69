"""What is asked of a site in a meta-analysis, its answer, and published estimates beside it."""

from typing import Any, NamedTuple

import numpy as np

from wardround.core.analysis import Agreed
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.statistics.disclosure.dominance import is_tellable
from wardround.statistics.pooling import effects
from wardround.statistics.pooling.effects import UNKNOWN, OwnEffect
from wardround.statistics.propensity.logistic import fit_logistic
from wardround.statistics.selection.columns import check_columns, check_flag
from wardround.statistics.selection.covariates import covariate_matrix, split_kinds
from wardround.statistics.selection.rows import CompleteRows, complete_rows

RATIOS = ("odds_ratio", "risk_ratio", "risk_difference", "adjusted_odds_ratio")
"""Measures whose outcome is a yes or no."""
LOGARITHMIC = ("odds_ratio", "risk_ratio", "adjusted_odds_ratio")
ADJUSTED = ("adjusted_difference", "adjusted_odds_ratio")


class EffectQuestion(NamedTuple):
    """An effect, of what on what, among whom."""

    measure: str
    outcome: str
    exposure: str
    event: str
    exposed: str
    covariates: tuple[str, ...]
    only: str
    cell: int


class SiteEstimate(NamedTuple):
    """Of a site or a published study; `patients` is 0 where it is not known."""

    name: str
    effect: float
    variance: float
    patients: int = 0
    is_corrected: bool = False
    is_published: bool = False


def check_question(asked: EffectQuestion, agreed: Agreed) -> EffectQuestion:
    """Refuse what the columns cannot answer; give the question with the levels that are meant."""
    if asked.measure == "published":
        return asked
    place = "[analysis]"
    if not asked.outcome:
        raise Refusal(f"the measure {asked.measure} needs an outcome", where=place, remedy="add outcome = ...")
    if asked.measure != "mean" and not asked.exposure:
        raise Refusal(f"the measure {asked.measure} needs an exposure", where=place, remedy="add exposure = ...")
    if asked.covariates and asked.measure not in ADJUSTED:
        raise Refusal(
            f"the measure {asked.measure} takes no covariates", where=place, remedy=f"use one of {', '.join(ADJUSTED)}"
        )
    names = [name for name in (asked.outcome, asked.exposure, *asked.covariates) if name]
    check_columns(agreed, names, where=place)
    if asked.measure in RATIOS:
        asked = asked._replace(event=check_flag(agreed, asked.outcome, asked.event, where=f"{place} outcome"))
    else:
        check_columns(agreed, (asked.outcome,), kind="number", where=f"{place} outcome")
    if asked.measure == "correlation":
        check_columns(agreed, (asked.exposure,), kind="number", where=f"{place} exposure")
    elif asked.exposure and not (asked.measure in ADJUSTED and agreed.columns[asked.exposure].kind == "number"):
        asked = asked._replace(exposed=check_flag(agreed, asked.exposure, asked.exposed, where=f"{place} exposure"))
    return asked


def estimate_of(asked: EffectQuestion, agreed: Agreed, site: Site) -> tuple[OwnEffect, int]:
    """A site's estimate from its own rows, and of how many patients; unknown where it may not tell."""
    numbers, flags = [], {}
    (flags.update({asked.outcome: asked.event}) if asked.measure in RATIOS else numbers.append(asked.outcome))
    by_number = asked.measure == "correlation" or (
        asked.measure in ADJUSTED and agreed.columns[asked.exposure].kind == "number"
    )
    if asked.exposure:
        (numbers.append(asked.exposure) if by_number else flags.update({asked.exposure: asked.exposed}))
    more, categories = split_kinds(agreed, asked.covariates)
    rows = complete_rows(
        agreed,
        site,
        numbers=(*numbers, *more),
        categories=categories,
        flags=flags,
        only=asked.only,
        cell=asked.cell,
    )
    y = rows.flags[asked.outcome] if asked.measure in RATIOS else rows.numbers[:, 0]
    x = np.zeros(len(y))
    if asked.exposure:
        x = rows.numbers[:, len(numbers) - 1] if by_number else rows.flags[asked.exposure]
    return (effect_of(asked, agreed, rows, y, x, len(numbers)), len(y)) if may_tell(asked, y, x) else (UNKNOWN, 0)


def may_tell(asked: EffectQuestion, y: Any, x: Any) -> bool:
    """No group, and no cell of a 2 by 2 table, that is small but not empty; nobody who dominates."""
    if asked.cell <= 1:
        return len(y) > 0
    if not is_tellable(np.column_stack([y, x]), asked.cell, parameters=2 + len(asked.covariates)):
        return False
    flags = [one for one in (y, x) if np.isin(one, (0.0, 1.0)).all()]
    groups = np.unique(np.column_stack(flags), axis=0, return_counts=True)[1] if flags else np.array([len(y)])
    return bool((groups >= asked.cell).all())


def effect_of(asked: EffectQuestion, agreed: Agreed, rows: CompleteRows, y: Any, x: Any, first: int) -> OwnEffect:
    if asked.measure in ("odds_ratio", "risk_ratio", "risk_difference"):
        return effects.ratio(effects.fourfold(y, x), asked.measure)
    if asked.measure in ADJUSTED:
        return adjusted(asked, covariate_matrix(agreed, asked.covariates, rows, first=first), y, x)
    return {
        "mean": lambda: effects.mean_effect(y),
        "mean_difference": lambda: effects.difference(y, x),
        "standardized_difference": lambda: effects.standardized_difference(y, x),
        "correlation": lambda: effects.correlation(x, y),
    }[asked.measure]()


def adjusted(asked: EffectQuestion, z: Any, y: Any, x: Any) -> OwnEffect:
    """The coefficient of the exposure beside the covariates: least squares, or logistic regression."""
    design = np.column_stack([np.ones(len(y)), x, z])
    if len(y) <= design.shape[1] or np.linalg.matrix_rank(design) < design.shape[1]:
        return UNKNOWN
    if asked.measure == "adjusted_odds_ratio":
        fitted = fit_logistic(design, y)
        return UNKNOWN if fitted is None else OwnEffect(float(fitted[0][1]), float(fitted[1][1, 1]))
    inverse = np.linalg.inv(design.T @ design)
    beta = inverse @ design.T @ y
    left = float(((y - design @ beta) ** 2).sum()) / (len(y) - design.shape[1])
    return OwnEffect(float(beta[1]), left * float(inverse[1, 1]))


def told_estimate(site: str, told: Any) -> SiteEstimate:
    effect, variance, patients, corrected = (float(one) for one in told)
    if variance <= 0:
        return SiteEstimate(site, float("nan"), float("nan"))
    return SiteEstimate(site, effect, variance, int(patients), bool(corrected))


def published_estimate(said: Any) -> SiteEstimate:
    """From [name, effect, standard error] in a study file; ratios as logarithms."""
    fits = isinstance(said, list | tuple) and len(said) == 3 and isinstance(said[0], str)
    fits = fits and all(isinstance(one, int | float) and not isinstance(one, bool) for one in said[1:])
    if not fits or not np.isfinite(said[1]) or not 0 < said[2] < np.inf:
        raise Refusal(
            f"{said!r} is no published estimate",
            where="[analysis] published",
            remedy='write [name, effect, standard error], such as ["Smith 2019", 0.41, 0.12]; ratios as logarithms',
        )
    return SiteEstimate(said[0], float(said[1]), float(said[2]) ** 2, is_published=True)
