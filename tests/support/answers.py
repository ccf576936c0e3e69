"""How many numbers an answer really has, to hold against what a probe's or query's terms announce."""

from typing import Any

import jax
import numpy as np

from wardround.core.contracts import Algorithm, Message, Params
from wardround.engine.split_round import answer_shapes

ROW = (jax.ShapeDtypeStruct((3,), np.float32), jax.ShapeDtypeStruct((), np.int32))
"""A row of the federations in conftest.py."""


def numbers_of(answer: Message) -> int:
    return sum(int(np.prod(np.shape(leaf))) for leaf in jax.tree.leaves(answer.arrays))


def numbers_told(probe: Algorithm, params: Params, *, sites: int = 4, row: Any = ROW) -> int:
    """Of an answer to a probe that is begun with these parameters; nothing is computed."""
    server = probe.init(params, sites)
    return numbers_of(answer_shapes(probe, server, probe.init_client(params), row))
