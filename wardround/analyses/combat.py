"""ComBat harmonisation: the sites' shifts and spreads taken off, covariates preserved, in two exchanges of sums.

Johnson, Li and Rabinovic, Biostatistics 2007 (see `wardround.statistics.harmonisation.combat`). The first exchange
gives all that is common: effects of the covariates, grand mean, pooled spread. With it every site finds its own shift
and spread by empirical Bayes over its columns, from its own rows, and adjusts them there: `wardround apply` does it
from the finished run. The second exchange tells how much of the variation lay between sites before, and after.
A site of one patient is shifted only; one that may not tell about its patients can still adjust them.
"""

from typing import Any

import numpy as np

from wardround.core.analysis import Agreed, Analysis, Findings, FoundTable
from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.statistics.charts import bars
from wardround.statistics.disclosure.dominance import is_tellable
from wardround.statistics.harmonisation.combat import (
    CommonScale,
    common_scale,
    harmonised,
    site_shift,
    standardized,
)
from wardround.statistics.selection.columns import check_columns
from wardround.statistics.selection.covariates import (
    collinear_columns,
    covariate_matrix,
    covariate_names,
    split_kinds,
)
from wardround.statistics.selection.rows import complete_rows
from wardround.statistics.sentences import answered_text, figure, listed, percent

LABEL = "ComBat harmonisation"
MOST_LEVELS = 50


def size_of(of: Extent) -> int:
    wide = MOST_LEVELS * len(of.settings["covariates"])
    return wide * wide + (wide + 3) * len(of.settings["columns"]) + wide + 2


TERMS = Terms(
    "sums and products of the columns around your own means, for ComBat (cells of {smallest_cell}); your own shift and"
    " spread do not leave",
    size_of,
    times=2,
    rows="table",
)


@recorded("analysis", TERMS)
def combat(
    *, columns: tuple[str, ...], covariates: tuple[str, ...] = (), bayes: bool = True, smallest_cell: Count = 1
) -> Analysis:
    """ComBat: measurements of several sites made comparable, with what covariates explain preserved."""
    size = len(columns)

    def halves(agreed: Agreed, site: Site) -> tuple[Any, Any]:
        numbers, categories = split_kinds(agreed, covariates)
        rows = complete_rows(agreed, site, numbers=(*columns, *numbers), categories=categories)
        return rows.numbers[:, :size], covariate_matrix(agreed, covariates, rows, first=size)

    def begin(agreed: Agreed) -> Tree:
        check_columns(agreed, (*columns, *covariates), where="[analysis]")
        check_columns(agreed, columns, kind="number", where="[analysis] columns")
        if len(agreed.sites) < 2:
            raise Refusal("there is one site, so nothing to harmonise", remedy="name a site column with two or more")
        return {"agreed": agreed, "names": covariate_names(agreed, covariates)}

    def message(state: Tree) -> Message | None:
        if "common" not in state:
            return Message({"within": np.zeros(())})
        return None if "between" in state else Message(state["common"]._asdict())

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        y, z = halves(agreed, site)
        told = is_tellable(np.column_stack([y, z]), smallest_cell, parameters=z.shape[1] + 1)
        y, z = (y, z) if told else (y[:0], z[:0])
        if "within" in asked.arrays:
            own_y, own_z = (one - one.mean(axis=0) if len(one) else one for one in (y, z))
            return Message(
                {
                    "count": np.array(float(len(y))),
                    "sites": np.array(float(told)),
                    "zz": own_z.T @ own_z,
                    "zy": own_z.T @ own_y,
                    "yy": (own_y**2).sum(axis=0),
                    "total_y": y.sum(axis=0),
                    "total_z": z.sum(axis=0),
                }
            )
        common = CommonScale(asked.arrays["effects"], asked.arrays["mean"], asked.arrays["spread"])
        if not told:
            return Message({"before": np.zeros(size), "after": np.zeros(size), "all": np.zeros(size)})
        standard = standardized(common, y, z)
        after = standardized(common, harmonised(common, site_shift(standard, bayes=bayes), y, z), z)
        return Message(
            {
                "before": len(y) * standard.mean(axis=0) ** 2,
                "after": len(y) * after.mean(axis=0) ** 2,
                "all": (standard**2).sum(axis=0),
            }
        )

    def step(state: Tree, told: Message) -> Tree:
        if "common" in state:
            share = {key: told.arrays[key] / told.arrays["all"] for key in ("before", "after")}
            return {**state, "between": share}
        return after_first(state, told.arrays, columns)

    def report(state: Tree) -> Report:
        return told_of(state, columns, covariates, bayes, smallest_cell)

    return Analysis((*columns, *covariates), begin, message, ask, step, report, most=2)


def after_first(state: Tree, told: Tree, columns: tuple[str, ...]) -> Tree:
    count, sites = float(told["count"]), int(told["sites"])
    if sites < 2:
        raise Refusal(
            f"{sites} of {len(state['agreed'].sites)} sites may tell about their patients, and two are needed",
            remedy="name fewer columns, or such as more patients have, or lower smallest_cell where the sites allow it",
        )
    constant = [name for name, one in zip(columns, told["yy"], strict=True) if one <= 0]
    if constant:
        raise Refusal(
            f"the columns {listed(constant)} do not vary within any site, so they have no spread to compare",
            where="[analysis] columns",
            remedy="leave them out",
        )
    same = collinear_columns(np.asarray(told["zz"]), state["names"])
    if same:
        raise Refusal(
            f"the covariates {listed(same)} follow from the site and the other covariates, so their part cannot be told"
            " from the sites'",
            where="[analysis] covariates",
            remedy="leave them out",
        )
    parts = (told[key] for key in ("zz", "zy", "yy", "total_y", "total_z"))
    return {**state, "count": count, "sites": sites, "common": common_scale(count, *parts)}


def told_of(state: Tree, columns: tuple[str, ...], covariates: tuple[str, ...], bayes: bool, cell: int) -> Report:
    common, between = state["common"], state["between"]
    worst = int(np.argmax(between["before"]))
    kept = f" The effects of {listed(list(covariates))} are preserved." if covariates else ""
    words = [
        f"Differences between sites made up {percent(between['before'].mean(), 1)} of the variation of {len(columns)}"
        f" columns over {state['count']:.0f} patients, most of {columns[worst]}"
        f" ({percent(between['before'][worst], 1)}); after harmonisation they make up"
        f" {percent(between['after'].mean(), 1)}.{kept}",
        "Every site adjusts its own rows with `wardround apply`; its shift and spread stay there.",
    ]
    if bayes and len(columns) < 2:
        words.append("With one column there is no prior over columns: its shift and spread are taken as they are.")
    words += [text for text in (answered_text(state["sites"], len(state["agreed"].sites), cell),) if text]
    rows: list[list[Any]] = [
        [name, float(common.mean[place]), float(common.spread[place]), *(float(between[key][place]) for key in between)]
        for place, name in enumerate(columns)
    ]
    effects = [
        [name, *(figure(float(value)) for value in line)]
        for name, line in zip(state["names"], common.effects, strict=True)
    ]
    tables = [
        FoundTable(
            "columns",
            "Mean over all sites (covariates at 0), spread within sites, and the share of the variation that lies"
            " between sites.",
            ["column", "mean", "SD within sites", "between sites before", "between sites after"],
            rows,
        )
    ]
    if effects:
        tables.append(FoundTable("covariates", "What is preserved, per unit.", ["covariate", *columns], effects))
    shares = {"before": (columns, between["before"]), "after": (columns, between["after"])}
    return Findings(
        words,
        tables,
        [bars("between_sites", "Variation that lies between sites", shares, "column", "share")],
        {
            "patients": state["count"],
            "sites": state["sites"],
            "columns": list(columns),
            "covariates": list(covariates),
            "levels": {name: list(state["agreed"].columns[name].levels) for name in covariates},
            "bayes": bayes,
            "effects": common.effects.tolist(),
            "mean": common.mean.tolist(),
            "spread": common.spread.tolist(),
            "between_before": between["before"].tolist(),
            "between_after": between["after"].tolist(),
        },
    ).report()
