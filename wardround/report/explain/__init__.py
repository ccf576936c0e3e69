"""The pages of `explain` and `gaps`."""
