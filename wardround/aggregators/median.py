"""The median of the answers, coordinate by coordinate, every site with one vote.

Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018.
Holds as long as fewer than half of the sites are bad. Needs all answers at once (no streaming, no secure sum) and about
n log² n comparisons a coordinate. Ignores how many patients a site has, and where sites differ much it favours none.
"""

from wardround.aggregators.order_statistics import coordinate_median
from wardround.aggregators.stacks import close_stack, open_stack
from wardround.core.contracts import Aggregator, Message, Tree


def median() -> Aggregator:
    """Middle value of the sites' answers in every coordinate: holds while fewer than half of the sites are bad."""

    def reduce(state: Tree, answers: Message) -> tuple[Message, Tree]:
        stack = open_stack(answers)
        return close_stack(answers, stack, coordinate_median(stack)), state

    return Aggregator(init=lambda template: (), reduce=reduce, linear=False)
