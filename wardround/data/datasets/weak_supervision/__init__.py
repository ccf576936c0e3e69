"""Records to learn from without their labels: reviews, heart beats, and texts with the votes of functions."""
