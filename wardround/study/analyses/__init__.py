"""What an [analysis] of a study file means."""
