"""Predictions for single patients, explained in words and pictures."""
