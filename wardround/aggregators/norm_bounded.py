"""The weighted mean of answers, each scaled down to a largest length first.

Sun et al., "Can You Really Backdoor Federated Learning?", 2019 (arXiv 1911.07963).
A site cannot move the result by more than its share of the weight times `norm`; a longer answer keeps its direction.
Streams, but the server must see each answer before it is added, so it is not for secure sums: there, let the sites
bound their own with the transform `clip`. All arrays of an answer are measured together.
"""

import jax.numpy as jnp

from wardround.aggregators.stacks import content
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.core import trees
from wardround.core.bounds import Positive
from wardround.core.contracts import Aggregator, Message, Tree


def norm_bounded(*, norm: Positive = 1.0) -> Aggregator:
    """Mean of the sites' answers weighted as asked, each scaled down to a largest length first."""

    def each(state: Tree, answer: Message) -> Message:
        arrays, weight = content(answer), answer.arrays["weight"]
        # Divided by the weight before squaring: a large site's arrays would overflow long before its update does.
        length = jnp.sqrt(trees.squared_norm(trees.divide_or_zero(arrays, weight)))
        return Message({**trees.scale(arrays, norm / jnp.maximum(length, norm)), "weight": weight}, answer.meta)

    mean = weighted_mean()
    return Aggregator(init=mean.init, reduce=mean.reduce, linear=True, each=each)
