"""The coordinator at work for an analysis over real sites."""
