"""A model as a page that calculates: one HTML file for a telephone or an old laptop, without a network."""
