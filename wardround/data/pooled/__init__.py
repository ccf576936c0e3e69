"""The rows of many simulated sites as one table."""
