"""Which algorithms learn from tables: all but those that need images with masks."""

from wardround.engine import registry

OF_MASKS = ("asyn_dgan", "fed_dg", "fed_sim")
"""Tested on images in tests/algorithms/images and tests/contracts/test_masks.py."""
OF_TABLES = tuple(sorted(set(registry.components("algorithm")) - set(OF_MASKS)))
