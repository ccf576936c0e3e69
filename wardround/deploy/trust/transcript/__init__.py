"""The transcript of a study: how a model came about, signed, so that nobody has to believe the coordinator."""
