"""The tables of the study file, by topic; unknown keys are refused."""
