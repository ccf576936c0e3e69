"""What rows say about a model to second order: how its loss bends, not only where it falls."""
