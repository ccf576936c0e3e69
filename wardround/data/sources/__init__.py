"""Where a site's own rows are read from."""
