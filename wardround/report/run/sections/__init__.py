"""The sections of a run's report: a module here with `SECTIONS` is found by the page, and nothing else is edited."""
