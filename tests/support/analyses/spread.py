"""A small analysis for tests of the seam: the mean of a column in one exchange, the squared deviations in a second."""

import numpy as np

from wardround.core.analysis import Agreed, Analysis, Findings, FoundTable
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.engine import registry

TERMS = Terms("how many of your patients have a {column}, its sum, and its squared deviations", lambda of: 3)


@recorded("analysis", TERMS)
def spread(*, column: str, by: str = "", each: bool = False, most: int = 2) -> Analysis:
    """The mean and the variance of a column."""

    def message(state: Tree) -> Message | None:
        if "deviations" in state:
            return None
        return Message({"around": np.array(state.get("mean", 0.0)), "power": np.array(1.0 + ("mean" in state))})

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        away = site.table[column].to_numpy() - asked.arrays["around"]
        away = away[~np.isnan(away)] ** int(asked.arrays["power"])
        first = site.table[by].to_numpy() == agreed.columns[by].levels[0] if by else np.zeros(len(site.table))
        return Message({"count": np.array(len(away)), "total": away.sum(), "first": np.sum(first)})

    def step(state: Tree, told: Message) -> Tree:
        if each:
            return {"each": {site: float(one["total"]) for site, one in told.arrays.items()}, "deviations": 0.0}
        total, count = float(told.arrays["total"]), float(told.arrays["count"])
        if "mean" in state:
            return {**state, "deviations": total}
        return {"mean": total / count, "count": count, "first": float(told.arrays["first"])}

    def report(state: Tree) -> Report:
        table = FoundTable("spread", "Spread", ("what", "value"), [[key, str(value)] for key, value in state.items()])
        return Findings([f"The mean of {column} is {state.get('mean', 0):.2f}."], [table], numbers=state).report()

    columns = (column, by) if by else (column,)
    return Analysis(columns, lambda agreed: {}, message, ask, step, report, most=most, sums=not each)


def lend_spread() -> None:
    """Let this process find it under its name, once."""
    if not registry.is_lent("analysis", "spread"):
        registry.lend("analysis", "spread", spread)
