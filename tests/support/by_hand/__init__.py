"""Models and data small enough to be reckoned by hand, in float64 and without the engine."""
