"""Both halves of boosted trees: what a site answers from its rows, and what the coordinator makes of the sums."""
