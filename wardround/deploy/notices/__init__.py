"""Notices to people who are not looking: by e-mail, webhook or command. Off unless notices.toml is there."""
