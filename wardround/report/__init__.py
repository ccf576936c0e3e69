"""The run folder as a page and a table for people."""
