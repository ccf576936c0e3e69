"""Algorithms in which the sites' models are draws around a common one. One file an algorithm, as everywhere."""
