"""The run folder: the format of `result.json`, typed; one writer, one tolerant reader."""
