"""Parties in processes of their own, and what a test uses to direct them."""
