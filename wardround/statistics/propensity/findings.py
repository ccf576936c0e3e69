"""What is told of a treatment: its effect, how comparable the groups were before and after weighting."""

import math
from typing import Any

import numpy as np
from scipy import stats

from wardround.core.analysis import Findings, FoundTable
from wardround.core.contracts import Report
from wardround.statistics.charts import bars
from wardround.statistics.propensity.inverse_weights import SandwichSums, effect_error, standardized_differences
from wardround.statistics.sentences import answered_text, evidence, figure, interval_text, named, p_text, percent

BALANCED = 0.1
"""Standardized difference below which groups count as alike (Austin 2011)."""


def treatment_findings(
    state: Any, treatment: str, outcome: str, event: str, covariates: tuple[str, ...], cell: int
) -> Report:
    one, other = (float(mean) for mean in state["means"])
    effect = one - other
    error, _ = effect_error(SandwichSums(np.asarray(state["bread"]), np.asarray(state["meat"])))
    reach = float(stats.norm.ppf(0.975)) * error
    p = float(2 * stats.norm.sf(abs(effect) / error)) if error > 0 else math.nan
    balance = standardized_differences(np.asarray(state["balance"]))
    sizes = [float(w[1] ** 2 / w[2]) for w in state["weighted"]]
    plain = np.asarray(state["balance"])[0, :, 0, 0]
    what = f"the share with {named(outcome, event)}" if event else outcome
    more = "more" if effect > 0 else "less"
    worst = int(np.argmax(np.abs(balance[1])))
    words = [
        f"With {named(treatment, state['level'])}, {what} is on average {figure(abs(effect))} {more}"
        f" ({figure(one)} against {figure(other)};"
        f" 95 % interval of the difference {interval_text(effect - reach, effect + reach)}, {p_text(p)}), once"
        f" {len(covariates)} covariates are allowed for by inverse weights: {evidence(p)}.",
        f"{plain[0]:.0f} treated and {plain[1]:.0f} others of {state['count']:.0f} patients count as much as"
        f" {sizes[0]:.0f} and {sizes[1]:.0f} unweighted ones.",
    ]
    if abs(balance[1][worst]) > BALANCED:
        words.append(
            f"After weighting the groups still differ in {state['names'][worst]} by"
            f" {figure(abs(float(balance[1][worst])), 2)} standard deviations: read the effect with care."
        )
    else:
        words.append(
            "After weighting the groups differ in no covariate by more than"
            f" {figure(max(float(np.abs(balance[1]).max()), 0.001), 2)} standard deviations."
        )
    if min(sizes[0] / max(plain[0], 1), sizes[1] / max(plain[1], 1)) < 0.5:
        words.append(
            f"Less than {percent(0.5)} of a group counts: few carry large weights, so the groups hardly overlap."
        )
    words.append("This holds if all that decides about the treatment and bears on the outcome is among the covariates.")
    words += [text for text in (answered_text(state["sites"], state["all"], cell),) if text]
    errors = np.sqrt(np.diag(np.linalg.inv(state["information"])))[1:] / state["sd"]
    slopes = state["coefficients"][1:] / state["sd"]
    table = FoundTable(
        "balance",
        "How much the treated differ from the others, in standard deviations, before and after weighting; and how each"
        " covariate bears on the odds of treatment.",
        ["covariate", "before", "after", "odds ratio per unit", "low", "high"],
        [
            [
                name,
                float(balance[0][i]),
                float(balance[1][i]),
                *(float(np.exp(slopes[i] + k * 1.959963984540054 * errors[i])) for k in (0, -1, 1)),
            ]
            for i, name in enumerate(state["names"])
        ],
    )
    shown = {label: (state["names"], np.abs(balance[place])) for place, label in enumerate(("before", "after"))}
    intercept = float(state["coefficients"][0] - (slopes * state["mean"]).sum())
    return Findings(
        words,
        [table],
        [bars("balance", "Differences between the groups", shown, "covariate", "standardized difference")],
        {
            "effect": effect,
            "error": error,
            "low": effect - reach,
            "high": effect + reach,
            "p": p,
            "treated_mean": one,
            "other_mean": other,
            "patients": state["count"],
            "sites": state["sites"],
            "names": list(state["names"]),
            "covariates": list(covariates),
            "levels": {name: list(state["levels"][name]) for name in covariates},
            "intercept": intercept,
            "coefficients": slopes.tolist(),
            "errors": errors.tolist(),
            "balance_before": balance[0].tolist(),
            "balance_after": balance[1].tolist(),
            "effective": sizes,
            "newton_steps": state["steps"],
        },
    ).report()
