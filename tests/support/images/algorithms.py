"""Which algorithms learn from tables: all but those that need images with masks. And how their engines are compared."""

import re
from typing import Any

import jax
import numpy as np

from wardround.engine import registry

OF_MASKS = ("asyn_dgan", "fed_dg", "fed_sim")
"""Tested on images in tests/algorithms/images and tests/contracts/test_masks.py."""
OF_TABLES = tuple(sorted(set(registry.components("algorithm")) - set(OF_MASKS)))


def assert_same_states(ours: Any, theirs: Any, atol: float) -> None:
    """Of both engines. A bias before a normalization has no slope but rounding, of which Adam makes whole steps."""
    ours, theirs = (jax.tree_util.tree_leaves_with_path(one) for one in (ours, theirs))
    for (path, one), (_, two) in zip(ours, theirs, strict=True):
        if not re.search(r"segmenter/\w+_[ab]/bias", jax.tree_util.keystr(path)):
            np.testing.assert_allclose(one, two, atol=atol, err_msg=jax.tree_util.keystr(path))
