"""What a study may cost, and methods at equal cost."""
