"""The model card of a run."""
