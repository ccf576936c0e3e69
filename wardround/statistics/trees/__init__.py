"""Gradient boosted trees from sums: shared bins, histograms of slopes, the best splits, the forest they make."""
