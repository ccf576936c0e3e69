"""`wardround check`: what a table holds, and whether a study of it can work."""
