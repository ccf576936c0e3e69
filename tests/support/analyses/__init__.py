"""Analyses and their data for tests."""
