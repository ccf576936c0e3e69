"""From a study file to a finished run folder: reading, assembling, running, comparing, tuning."""
