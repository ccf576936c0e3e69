"""How good predictions are, at each site and over all, and how sure one can be."""
