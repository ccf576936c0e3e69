"""How alike two sites are: histograms, transfer losses, ranks, a map."""
