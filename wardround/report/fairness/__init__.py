"""Fairness in reports."""
