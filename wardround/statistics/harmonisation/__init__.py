"""Measurements of several sites made comparable."""
