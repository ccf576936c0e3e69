"""The report over many settings."""
