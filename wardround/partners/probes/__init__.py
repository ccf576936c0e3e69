"""Rounds that train nothing in common but tell how sites relate to each other. One file a probe, found by its name."""
