"""What is trained. One file a model; `from_flax` and `from_torch` take a user's own."""
