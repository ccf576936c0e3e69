"""Estimates of several sites or studies put together: fixed and random effects."""
