"""The first server's half of `two_servers`, and what it has to do with a second server."""
