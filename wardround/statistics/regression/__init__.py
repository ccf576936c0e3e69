"""Regression by sums: formulas, designs, families, penalties, and what a site may tell."""
