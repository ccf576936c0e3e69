"""Meta-analysis: every site estimates an effect from its own rows, and the estimates are put together.

Fixed and random effects (DerSimonian-Laird, REML, Paule-Mandel) with the adjustment of Hartung and Knapp, prediction
interval, I2, tau2 with its interval, Egger's test; forest and funnel. One exchange; an estimate, its variance and the
number of patients leave a site, so it cannot be hidden in a secure sum. Published estimates can be put beside, or alone
(`measure` = "published"). Where a cell of a site's 2 by 2 table is small, or a group is, the site tells nothing.
"""

from typing import Any, Literal

import numpy as np

from wardround.core.analysis import Agreed, Analysis
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.pooling import site_estimates
from wardround.statistics.pooling.findings import pooled_findings
from wardround.statistics.pooling.random_effects import Spread
from wardround.statistics.selection.conditions import check_conditions, read_conditions
from wardround.statistics.selection.rows import covered_rows

LABEL = "Meta-analysis"
TERMS = Terms(
    "your own estimate ({measure}) of the effect on {outcome}, its variance, and your number of patients (cells of"
    " {smallest_cell})",
    lambda of: 4,
    rows="table",
)
Measure = Literal[
    "mean",
    "mean_difference",
    "standardized_difference",
    "odds_ratio",
    "risk_ratio",
    "risk_difference",
    "correlation",
    "adjusted_difference",
    "adjusted_odds_ratio",
    "published",
]


@recorded("analysis", TERMS)
def meta_analysis(
    *,
    measure: Measure,
    outcome: str = "",
    exposure: str = "",
    event: str = "",
    exposed: str = "",
    covariates: tuple[str, ...] = (),
    published: tuple[Any, ...] = (),
    tau2: Spread = "reml",
    hartung_knapp: bool = True,
    only: str = "",
    smallest_cell: Count = 1,
) -> Analysis:
    """Site estimates put together by fixed and random effects, with heterogeneity, forest and funnel plots."""
    conditions = read_conditions(only)
    asked_for = site_estimates.EffectQuestion(
        measure, outcome, exposure, event, exposed, covariates, only, smallest_cell
    )
    beside = [site_estimates.published_estimate(one) for one in published]

    def begin(agreed: Agreed) -> Tree:
        meant = site_estimates.check_question(asked_for, agreed)
        check_conditions(conditions, agreed)
        if measure == "published" and not beside:
            raise Refusal(
                "there is nothing to put together",
                where="[analysis] published",
                remedy='list estimates: published = [["Smith 2019", 0.41, 0.12], ...] (name, effect, standard error)',
            )
        per_unit = exposure in agreed.columns and agreed.columns[exposure].kind == "number"
        return {"sites": agreed.sites, "meant": meant, "per_unit": per_unit and measure in site_estimates.ADJUSTED}

    def message(state: Tree) -> Message | None:
        if measure == "published" or "told" in state:
            return None
        return Message({"estimate": np.zeros(())})

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        found, patients = site_estimates.estimate_of(asked_for, agreed, site)
        known = np.isfinite(found.effect) and np.isfinite(found.variance) and found.variance > 0
        told = [found.effect, found.variance, float(patients), float(found.is_corrected)] if known else [0.0] * 4
        return Message({"estimate": np.array(told)})

    def step(state: Tree, told: Message) -> Tree:
        return {**state, "told": {site: np.asarray(one["estimate"]) for site, one in told.arrays.items()}}

    def report(state: Tree) -> Report:
        told = state.get("told", {})
        mine = [site_estimates.told_estimate(site, told[site]) for site in state["sites"] if site in told]
        return pooled_findings(state["meant"], mine, beside, tau2, adjust=hartung_knapp, per_unit=state["per_unit"])

    wanted = (outcome, exposure, *covariates, *(one.column for one in conditions))
    columns = tuple(dict.fromkeys(name for name in wanted if name)) if measure != "published" else ()
    return Analysis(
        columns,
        begin,
        message,
        ask,
        step,
        report,
        most=1,
        sums=False,
        covers=lambda agreed, site: [
            covered_rows(agreed, site, [one for one in (outcome, exposure, *covariates) if one], only)
        ],
    )
