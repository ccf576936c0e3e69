"""Survival as a task of training: intervals of time as classes, and patients who were lost from sight."""
