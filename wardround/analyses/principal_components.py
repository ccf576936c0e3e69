"""Principal components of several columns over all sites, corrected for covariates, without moving a row.

Silva, Gutman, Romero, Thompson, Altmann and Lorenzi, "Federated learning in distributed medical databases:
meta-analysis of large-scale subcortical brain data", ISBI 2019: global means and SDs, a shared matrix W that takes the
covariates' part off, the covariance of what is left, its components. With `correction` = "closed", W is least squares
from the same sums, in two exchanges; with "admm" sites agree on it as in the paper, in some tens. Both give what all
rows in one place give. `local_components` limits what a site tells of its covariance to its own first components (the
paper's approximation). Where patients lie along the components is computed at their site and stays there.
"""

from typing import Any, Literal

import numpy as np

from wardround.core.analysis import Agreed, Analysis, Findings, FoundTable
from wardround.core.bounds import Count, CountOrAll
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.charts import bars, heat
from wardround.statistics.disclosure.dominance import is_tellable
from wardround.statistics.multivariate.components import Components, corrected, principal, truncated
from wardround.statistics.multivariate.consensus import site_step
from wardround.statistics.selection.columns import check_columns
from wardround.statistics.selection.conditions import check_conditions, read_conditions
from wardround.statistics.selection.covariates import (
    collinear_columns,
    covariate_matrix,
    covariate_names,
    split_kinds,
)
from wardround.statistics.selection.rows import complete_rows, covered_rows
from wardround.statistics.sentences import answered_text, listed, percent

LABEL = "Principal components"
MOST_LEVELS = 50
CLOSE = 1e-10
"""Change of the shared matrix at which the sites agree."""


def size_of(of: Extent) -> int:
    wide = len(of.settings["columns"]) + MOST_LEVELS * len(of.settings["covariates"])
    return wide * wide + 1


TERMS = Terms(
    "sums and products of the columns around their means, for principal components (cells of {smallest_cell})",
    size_of,
    times=1000,
    rows="table",
)


@recorded("analysis", TERMS)
def principal_components(
    *,
    columns: tuple[str, ...],
    covariates: tuple[str, ...] = (),
    components: CountOrAll = 0,
    correction: Literal["closed", "admm"] = "closed",
    rounds: Count = 500,
    local_components: CountOrAll = 0,
    only: str = "",
    smallest_cell: Count = 1,
) -> Analysis:
    """Principal components of columns over all sites, corrected for covariates: W and S of Silva et al."""
    conditions = read_conditions(only)
    size = len(columns)

    def matrix_of(agreed: Agreed, site: Site) -> Any:
        numbers, categories = split_kinds(agreed, covariates)
        rows = complete_rows(
            agreed, site, numbers=(*columns, *numbers), categories=categories, only=only, cell=smallest_cell
        )
        return np.column_stack([rows.numbers[:, :size], covariate_matrix(agreed, covariates, rows, first=size)])

    def begin(agreed: Agreed) -> Tree:
        check_columns(agreed, (*columns, *covariates), where="[analysis]")
        check_columns(agreed, columns, kind="number", where="[analysis] columns")
        check_conditions(conditions, agreed)
        if size < 2:
            raise Refusal("one column has no components", where="[analysis] columns", remedy="name two or more")
        return {"agreed": agreed, "names": (*columns, *covariate_names(agreed, covariates)), "phase": "means"}

    def message(state: Tree) -> Message | None:
        if state["phase"] == "means":
            return Message({"means": np.zeros(len(state["names"]))})
        if state["phase"] == "products":
            return Message({"around": state["mean"]})
        standard = {"around": state["mean"], "scale": state["scale"]}
        if state["phase"] == "agree":
            return Message({**standard, "history": np.stack(state["history"]), "penalty": np.array(state["penalty"])})
        return Message({**standard, "shared": state["coefficients"]}) if state["phase"] == "covariance" else None

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        x = matrix_of(agreed, site)
        wide = x.shape[1]
        told = is_tellable(x, smallest_cell, parameters=wide)
        if not told:
            x = x[:0]
        sites = np.array(float(told))
        if "means" in asked.arrays:
            return Message({"count": np.array(float(len(x))), "total": x.sum(axis=0), "sites": sites})
        away = x - asked.arrays["around"]
        if "scale" not in asked.arrays:
            return Message({"products": away.T @ away})
        y, z = np.split(away / asked.arrays["scale"], [size], axis=1)
        if "history" in asked.arrays:
            if not told:
                return Message({"shared": np.zeros((wide - size, size)), "sites": sites})
            step = site_step(z.T @ z, z.T @ y, asked.arrays["history"], float(asked.arrays["penalty"]))
            return Message({"shared": step, "sites": sites})
        left = y - z @ asked.arrays["shared"]
        own = left.T @ left
        return Message({"left": truncated(own, local_components) if local_components and told else own})

    def step(state: Tree, told: Message) -> Tree:
        return STEPS[state["phase"]](state, told.arrays, correction, local_components, size)

    def report(state: Tree) -> Report:
        amount = components or size
        found = principal(state["left"] / (state["count"] - 1), min(amount, size))
        return told_of(state, found, columns, covariates, smallest_cell)

    return Analysis(
        columns=tuple(dict.fromkeys((*columns, *covariates, *(one.column for one in conditions)))),
        begin=begin,
        message=message,
        ask=ask,
        step=step,
        report=report,
        most=rounds + 4 if correction == "admm" else 3,
        covers=lambda agreed, site: [covered_rows(agreed, site, (*columns, *covariates), only)],
    )


def after_means(state: Tree, told: Tree, correction: str, local: int, size: int) -> Tree:
    count = float(told["count"])
    if count < 3:
        raise Refusal(
            "no site has enough complete rows to tell about",
            remedy="name columns that more patients have, or lower smallest_cell where the sites allow it",
        )
    return {**state, "phase": "products", "count": count, "sites": int(told["sites"]), "mean": told["total"] / count}


def after_products(state: Tree, told: Tree, correction: str, local: int, size: int) -> Tree:
    products, names = np.asarray(told["products"]), state["names"]
    constant = [name for name, one in zip(names, np.diag(products), strict=True) if one <= 0]
    if constant:
        raise Refusal(f"the columns {listed(constant)} do not vary", remedy="leave them out")
    same = collinear_columns(products[size:, size:], names[size:])
    if same:
        raise Refusal(
            f"the covariates {listed(same)} follow from the others, so their parts cannot be told apart",
            where="[analysis] covariates",
            remedy="leave them out",
        )
    scale = np.sqrt(np.diag(products) / state["count"])
    standard = products / np.outer(scale, scale)
    coefficients, left = corrected(standard, size)
    state = {**state, "scale": scale, "correlation": standard[:size, :size] / state["count"], "history": ()}
    if correction == "admm" and len(names) > size:
        first = np.zeros((len(names) - size, size))
        return {**state, "phase": "agree", "history": (first,), "penalty": state["count"] / state["sites"]}
    state = {**state, "coefficients": coefficients, "left": left}
    return {**state, "phase": "covariance" if local else "done"}


def after_agreement(state: Tree, told: Tree, correction: str, local: int, size: int) -> Tree:
    shared = np.asarray(told["shared"]) / float(told["sites"])
    history = (*state["history"], shared)
    if np.abs(shared - history[-2]).max() > CLOSE:
        return {**state, "history": history}
    return {**state, "history": history, "coefficients": shared, "phase": "covariance"}


def after_covariance(state: Tree, told: Tree, correction: str, local: int, size: int) -> Tree:
    return {**state, "left": np.asarray(told["left"]), "phase": "done"}


STEPS = {
    "means": after_means,
    "products": after_products,
    "agree": after_agreement,
    "covariance": after_covariance,
}


def told_of(state: Tree, found: Components, columns: tuple[str, ...], covariates: tuple[str, ...], cell: int) -> Report:
    size = len(columns)
    labels = [f"component {number}" for number in range(1, len(found.shares) + 1)]
    enough = int(np.searchsorted(np.cumsum(found.shares), 0.8) + 1)
    leading = [columns[place] for place in np.argsort(-np.abs(found.loadings[0]))[:3]]
    after = f" after {listed(list(covariates))} were taken into account" if covariates else ""
    words = [
        f"Over {state['count']:.0f} patients the first component holds {percent(found.shares[0])} of the variation of"
        f" {size} columns{after}; it is mostly {listed(leading)}.",
    ]
    if enough <= len(found.shares):
        words.append(f"{enough} of {size} components hold at least 80 % of the variation.")
    words += [text for text in (answered_text(state["sites"], len(state["agreed"].sites), cell),) if text]
    words.append("Scores of patients stay at their site; the loadings here are enough to compute them there.")
    names = state["names"]
    tables = [
        FoundTable(
            "components",
            "Share of the variation, and how much of each column (in standard deviations) a component has.",
            ["component", "variance", "share", *columns],
            [
                [label, float(variance), float(share), *map(float, loading)]
                for label, variance, share, loading in zip(
                    labels, found.variances, found.shares, found.loadings, strict=True
                )
            ],
        ),
        FoundTable(
            "columns",
            "Mean and standard deviation over all sites.",
            ["column", "mean", "SD"],
            [[name, float(m), float(s)] for name, m, s in zip(names, state["mean"], state["scale"], strict=True)],
        ),
    ]
    if len(names) > size:
        tables.append(
            FoundTable(
                "correction",
                "Standard deviations by which a column rises per standard deviation of a covariate (W).",
                ["covariate", *columns],
                [[n, *map(float, w)] for n, w in zip(names[size:], state["coefficients"], strict=True)],
            )
        )
    return Findings(
        words,
        tables,
        [
            bars("shares", "Share of the variation", {"share": (labels, found.shares)}, "component", "share"),
            heat("loadings", "What the components are made of", labels, columns, found.loadings),
            heat("correlations", "Correlations of the columns", columns, columns, state["correlation"]),
        ],
        {
            "patients": state["count"],
            "sites": state["sites"],
            "columns": list(columns),
            "covariates": list(covariates),
            "levels": {name: list(state["agreed"].columns[name].levels) for name in covariates},
            "mean": state["mean"].tolist(),
            "sd": state["scale"].tolist(),
            "coefficients": state["coefficients"].tolist(),
            "loadings": found.loadings.tolist(),
            "variances": found.variances.tolist(),
            "shares": found.shares.tolist(),
            "correlation": state["correlation"].tolist(),
            "rounds_of_agreement": max(0, len(state["history"]) - 1),
        },
    ).report()
