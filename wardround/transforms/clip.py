"""Clipping: a site scales its answer down to a largest length before it leaves.

Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, do it to gradients; McMahan et al., "Learning
Differentially Private Recurrent Language Models", ICLR 2018, to a site's whole update, as here.
All arrays of an answer are measured together, divided by the site's weight; the weight itself is left alone. Bounds
what one site can do to the sum, which noise for privacy relies on. Costs nothing on the wire.
"""

import jax.numpy as jnp

from wardround.core import trees
from wardround.core.bounds import Positive
from wardround.core.chain import identity
from wardround.core.contracts import Key, Message, Transform


def clip(*, norm: Positive = 1.0) -> Transform:
    """Scales what a site sends down to a largest length, so that no site can dominate the sum."""

    def up(received: Message, answer: Message, key: Key) -> Message:
        weight = answer.arrays["weight"]
        arrays = {name: tree for name, tree in answer.arrays.items() if name != "weight"}
        # Divided by the weight before squaring: a large site's arrays would overflow long before its update does.
        length = jnp.sqrt(trees.squared_norm(trees.divide_or_zero(arrays, weight)))
        return Message({**trees.scale(arrays, norm / jnp.maximum(length, norm)), "weight": weight}, answer.meta)

    return identity()._replace(up=up)
