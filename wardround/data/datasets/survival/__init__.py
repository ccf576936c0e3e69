"""Real tables with a follow-up time and an event, for survival analyses."""
