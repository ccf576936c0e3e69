"""The mathematics of analyses: families, formulas, distributions, estimators. Pure functions over NumPy arrays."""
