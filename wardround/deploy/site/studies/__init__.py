"""A study's life at a site beside its answers: checked against the data, amended, read anew, and listed."""
