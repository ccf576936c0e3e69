"""Tests from sums and counts: categories, means, ranks."""
