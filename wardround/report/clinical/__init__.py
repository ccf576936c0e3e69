"""What a clinician asks of a model, in words, charts and tables: sections of a run's report."""
