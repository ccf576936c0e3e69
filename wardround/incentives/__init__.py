"""Dilution limits, rewards, the signed ledger and the statement of who is owed what."""
