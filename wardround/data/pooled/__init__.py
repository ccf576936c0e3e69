"""Rows of many sites on one machine, in one table: the simulation need not go from site to site."""
