"""The commands of a second server."""
