"""The page of an analysis: what was found in words, tables and charts."""
