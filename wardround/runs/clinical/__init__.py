"""What a clinician asks of a run: the parts of a result that hold it."""
