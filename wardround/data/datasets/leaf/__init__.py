"""Data sets with natural clients, after LEAF."""
