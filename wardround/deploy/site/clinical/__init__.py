"""What a clinician asks of a model, answered at a site about its own patients."""
