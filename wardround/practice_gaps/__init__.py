"""Practice gaps: where another organisation's model is better, or as good and more consistent, on the same patients."""
