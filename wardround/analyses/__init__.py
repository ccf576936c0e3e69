"""Analyses: methods that learn from sums over patients in a few exchanges; one module each, named after the method."""
