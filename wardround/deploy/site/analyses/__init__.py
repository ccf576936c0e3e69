"""A site at work for an analysis: what may leave, what its administrator reads, and the answers."""
