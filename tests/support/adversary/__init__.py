"""Parties that lie, for the tests in tests/adversary and others."""
