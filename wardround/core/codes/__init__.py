"""Numbers as bytes and as text."""
