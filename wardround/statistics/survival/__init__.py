"""Survival analysis by sums: time axes, life tables, rank tests, partial likelihoods, incidences, concordance."""
