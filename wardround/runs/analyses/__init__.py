"""The result of an analysis: what was found, in words, tables, charts and numbers."""
