"""What a clinician asks of a study over real sites, as far as sites tell it."""
