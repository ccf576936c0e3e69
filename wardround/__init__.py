"""Wardround: hospitals train models together in rounds, and no patient's record ever leaves its hospital."""

__version__ = "0.1.0"
