"""The mean of the answers, each counted by its weight: what FedAvg does.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.
Needs only the sum of the answers, so it streams and works under a secure sum. Not robust: one bad site can move it
anywhere.
"""

from wardround.core import trees
from wardround.core.contracts import Aggregator, Message, Tree


def weighted_mean() -> Aggregator:
    """Mean of the sites' answers, weighted as the algorithm asks (by patients, or all sites alike)."""

    def reduce(state: Tree, total: Message) -> tuple[Message, Tree]:
        weight = total.arrays["weight"]
        rest = {name: tree for name, tree in total.arrays.items() if name != "weight"}
        return Message({**trees.divide_or_zero(rest, weight), "weight": weight}), state

    return Aggregator(init=lambda template: (), reduce=reduce, linear=True)
