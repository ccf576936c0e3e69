"""The effect of a treatment, allowing for who is treated: propensity scores and inverse probability weights.

The chance of being treated is a logistic regression on the covariates, fitted over all sites by Newton's method from
sums of score and information. Then weighted means of the outcome, and the sandwich of all equations for the standard
error (see `wardround.statistics.propensity`). All of it equals the fit on pooled rows. Where small groups are
protected, a site does not answer to coefficients so steep that they single out patients.
"""

from typing import Any

import numpy as np

from wardround.core.analysis import Agreed, Analysis
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.disclosure.dominance import is_tellable
from wardround.statistics.propensity.findings import treatment_findings
from wardround.statistics.propensity.inverse_weights import balance_sums, sandwich_sums, weighted_means
from wardround.statistics.propensity.logistic import FARTHEST, chances, is_steep, newton_sums
from wardround.statistics.selection.columns import check_columns, check_flag
from wardround.statistics.selection.conditions import check_conditions, read_conditions
from wardround.statistics.selection.covariates import (
    collinear_columns,
    covariate_matrix,
    covariate_names,
    split_kinds,
)
from wardround.statistics.selection.rows import complete_rows, covered_rows
from wardround.statistics.sentences import listed

LABEL = "Treatment effect by inverse weights"
MOST_LEVELS = 50
NEWTON = 25
CLOSE = 1e-10


def size_of(of: Extent) -> int:
    wide = 3 + MOST_LEVELS * len(of.settings["covariates"])
    return 2 * wide * wide + 12 * wide + 10


TERMS = Terms(
    "sums for a regression of {treatment} on the covariates, and weighted sums of {outcome} (cells of {smallest_cell})",
    size_of,
    times=NEWTON + 3,
    rows="table",
)


@recorded("analysis", TERMS)
def propensity(
    *,
    treatment: str,
    outcome: str,
    covariates: tuple[str, ...],
    treated: str = "",
    event: str = "",
    only: str = "",
    smallest_cell: Count = 1,
) -> Analysis:
    """The average effect of a treatment by propensity scores and inverse weights, with a sandwich standard error."""
    conditions = read_conditions(only)

    def variables(agreed: Agreed, site: Site) -> tuple[Any, Any, Any]:
        """Covariates, treatment and outcome of the complete rows."""
        numbers, categories = split_kinds(agreed, covariates)
        is_event = agreed.columns[outcome].kind == "category"
        flags = {treatment: treated, **({outcome: event} if is_event else {})}
        first = () if is_event else (outcome,)
        rows = complete_rows(
            agreed,
            site,
            numbers=(*first, *numbers),
            categories=categories,
            flags=flags,
            only=only,
            cell=smallest_cell,
        )
        y = rows.flags[outcome] if is_event else rows.numbers[:, 0]
        return covariate_matrix(agreed, covariates, rows, first=len(first)), rows.flags[treatment], y

    def begin(agreed: Agreed) -> Tree:
        check_columns(agreed, (treatment, outcome, *covariates), where="[analysis]")
        level = check_flag(agreed, treatment, treated, where="[analysis] treatment")
        is_event = agreed.columns[outcome].kind == "category"
        meant = check_flag(agreed, outcome, event, where="[analysis] outcome") if is_event else ""
        check_conditions(conditions, agreed)
        if not covariates:
            raise Refusal(
                "there are no covariates to allow for", where="[analysis] covariates", remedy="use group_means instead"
            )
        names = covariate_names(agreed, covariates)
        levels = {name: agreed.columns[name].levels for name in covariates}
        first = {"names": names, "level": level, "event": meant, "levels": levels, "phase": "scale", "steps": 0}
        return {"all": len(agreed.sites), **first}

    def message(state: Tree) -> Message | None:
        if state["phase"] == "scale":
            return Message({"totals": np.zeros(len(state["names"]))})
        if state["phase"] == "done":
            return None
        sent = {"mean": state["mean"], "sd": state["sd"], "coefficients": state["coefficients"]}
        return Message(sent | ({"means": state["means"]} if state["phase"] == "sandwich" else {}) | state["marks"])

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        z, t, y = variables(agreed, site)
        told = is_tellable(np.column_stack([z, t, y]), smallest_cell, parameters=z.shape[1] + 2)
        z, t, y = (z, t, y) if told else (z[:0], t[:0], y[:0])
        if "totals" in asked.arrays:
            everything = np.column_stack([z, t, y])
            count, sites = np.array(float(len(z))), np.array(float(told))
            return Message(
                {"count": count, "sum": everything.sum(axis=0), "products": everything.T @ everything, "sites": sites}
            )
        x = np.column_stack([np.ones(len(z)), (z - asked.arrays["mean"]) / asked.arrays["sd"]])
        coefficients = asked.arrays["coefficients"]
        if smallest_cell > 1 and is_steep(x, coefficients):
            raise Refusal(
                f"the regression puts a patient's odds of treatment beyond e^{FARTHEST:.0f}, where an answer would be"
                " about few patients",
                where=f"site {site.name}",
                remedy="leave out covariates that decide who is treated",
            )
        if "fit" in asked.arrays:
            return Message(newton_sums(x, t, coefficients)._asdict())
        e = chances(x, coefficients)
        if "means" not in asked.arrays:
            return Message({"weighted": weighted_means(t, e, y), "balance": balance_sums(z, t, e)})
        return Message(sandwich_sums(x, t, e, y, asked.arrays["means"])._asdict())

    def step(state: Tree, told: Message) -> Tree:
        return STEPS[state["phase"]](state, told.arrays, treatment, outcome)

    def report(state: Tree) -> Report:
        return treatment_findings(state, treatment, outcome, state["event"], covariates, smallest_cell)

    wanted = (treatment, outcome, *covariates, *(one.column for one in conditions))
    return Analysis(
        tuple(dict.fromkeys(wanted)),
        begin,
        message,
        ask,
        step,
        report,
        most=NEWTON + 3,
        covers=lambda agreed, site: [covered_rows(agreed, site, (treatment, outcome, *covariates), only)],
    )


def after_scale(state: Tree, told: Tree, treatment: str, outcome: str) -> Tree:
    count, total = float(told["count"]), np.asarray(told["sum"])
    if count < 3:
        raise Refusal(
            "no site has enough complete rows to tell about",
            remedy="name columns that more patients have, or lower smallest_cell where the sites allow it",
        )
    mean = total / count
    products = np.asarray(told["products"]) - count * np.outer(mean, mean)
    scale = np.diag(np.asarray(told["products"]))
    products[np.diag_indices(len(mean))] = np.where(
        np.diag(products) <= 1e-12 * np.maximum(scale, 1e-300), 0.0, np.diag(products)
    )
    names = (*state["names"], treatment, outcome)
    constant = [name for name, one in zip(names, np.diag(products), strict=True) if one <= 0]
    if constant:
        raise Refusal(f"{listed(constant)} do not vary over the patients counted", remedy="leave them out")
    same = collinear_columns(products[:-2, :-2], state["names"])
    if same:
        raise Refusal(
            f"the covariates {listed(same)} follow from the others",
            where="[analysis] covariates",
            remedy="leave them out",
        )
    sd = np.sqrt(np.diag(products)[:-2] / count)
    state = {**state, "count": count, "sites": int(told["sites"]), "mean": mean[:-2], "sd": sd, "phase": "fit"}
    state |= {"treated": float(total[-2]), "coefficients": np.zeros(len(sd) + 1), "marks": {"fit": np.zeros(())}}
    return state


def after_fit(state: Tree, told: Tree, treatment: str, outcome: str) -> Tree:
    information = np.asarray(told["information"])
    move = np.linalg.solve(information, np.asarray(told["score"]))
    coefficients, steps = state["coefficients"] + move, state["steps"] + 1
    if np.abs(coefficients).max() > 30 or np.linalg.cond(information) > 1e14 or steps >= NEWTON:
        raise Refusal(
            f"the covariates tell exactly who has {treatment}, so nobody is comparable (perfect separation)",
            where="[analysis] covariates",
            remedy="leave out the covariate that decides about the treatment",
        )
    state = {**state, "coefficients": coefficients, "steps": steps, "information": information}
    return state if np.abs(move).max() > CLOSE else {**state, "phase": "weights", "marks": {}}


def after_weights(state: Tree, told: Tree, treatment: str, outcome: str) -> Tree:
    weighted = np.asarray(told["weighted"])
    means = weighted[:, 0] / weighted[:, 1]
    return {**state, "weighted": weighted, "means": means, "balance": told["balance"], "phase": "sandwich"}


def after_sandwich(state: Tree, told: Tree, treatment: str, outcome: str) -> Tree:
    return {**state, "bread": told["bread"], "meat": told["meat"], "phase": "done"}


STEPS = {"scale": after_scale, "fit": after_fit, "weights": after_weights, "sandwich": after_sandwich}
