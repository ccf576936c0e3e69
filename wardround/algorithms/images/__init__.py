"""Algorithms for images that look different from site to site."""
