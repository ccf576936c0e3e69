"""Quantiles and histograms from counts in bins."""
