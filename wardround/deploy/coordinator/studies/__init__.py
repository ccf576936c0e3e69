"""A study's life for people: offered to all its sites, decided by each, cancelled, amended, and told when it ended."""
