"""The report of `wardround partners`."""
