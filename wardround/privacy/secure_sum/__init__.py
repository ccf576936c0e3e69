"""The secure sum: what sites and server do, message by message."""
