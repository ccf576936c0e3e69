"""What a training may spend, and when it has to stop: before the round that would pass a limit.

A round is taken to cost as much as the dearest so far, so the limit holds as long as no round is dearer than all before
it. The first round is held against what is known before it, its bytes and operations.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from wardround.core.contracts import RoundRecord
from wardround.core.errors import Refusal

UNITS = {
    "bytes": "bytes",
    "flops": "floating-point operations",
    "seconds": "seconds",
    "kilowatt_hours": "kWh",
    "grams_co2": "g of CO2",
}


class CostBudget(NamedTuple):
    """Limits by resource, and what a round costs of each."""

    limits: Mapping[str, float]
    cost: Callable[[RoundRecord], Mapping[str, float]]
    first: Mapping[str, float] = {}
    """What is known of the first round's cost."""
    joules: Callable[[], float] | None = None
    """Energy used since the last call, where it can be measured."""


UNLIMITED = CostBudget({}, lambda record: {})


class Spending(NamedTuple):
    """What was spent so far, and the most that a round cost."""

    total: Mapping[str, float] = {}
    dearest: Mapping[str, float] = {}

    def add(self, budget: CostBudget, records: Sequence[RoundRecord]) -> "Spending":
        total, dearest = dict(self.total), dict(self.dearest)
        for record in records:
            for name, cost in budget.cost(record).items():
                total[name] = total.get(name, 0.0) + cost
                dearest[name] = max(dearest.get(name, 0.0), cost)
        return Spending(total, dearest)

    def rounds_left(self, budget: CostBudget) -> tuple[int, str]:
        """How many rounds as dear as the dearest still fit, and what ends them."""
        if budget.limits and not self.dearest:
            return 1, ""
        found = (10**9, "")
        for name, limit in budget.limits.items():
            if self.dearest.get(name, 0.0) > 0:
                left = int((limit - self.total[name]) / self.dearest[name])
                found = min(found, (max(0, left), name))
        return found


def refuse_spent(budget: CostBudget) -> None:
    """Refuse a budget that not even the first round fits into."""
    for name, cost in budget.first.items():
        limit = budget.limits.get(name)
        if limit is not None and cost > limit:
            raise Refusal(
                f"the budget of {limit:,.6g} {UNITS[name]} is spent before it begins: one round takes {cost:,.6g}",
                where=f"[budget] {name}",
                remedy="raise it, let fewer sites take part in a round, or compress what travels",
            )
