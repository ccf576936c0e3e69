"""Results of `explain` and `gaps`, and what `predict` follows at a site."""
