"""Times of follow-up in words, with the unit that the study names for its column of times."""

from wardround.runs.fields import mapping
from wardround.runs.run import Run
from wardround.runs.sites import horizons_of


def unit_of(run: Run) -> str:
    """With a blank before it; empty where the study names none."""
    data = mapping(mapping(run.manifest.get("study")).get("data"))
    unit = mapping(data.get("units")).get(str(data.get("time")))
    return f" {unit}" if unit else ""


def time_text(run: Run, horizon: float | None) -> str:
    return f"{horizon or 0:g}{unit_of(run)}"


def horizons_named(run: Run) -> str:
    """The horizons of the task: "365 and 1825 days"."""
    ends = [f"{one:g}" for one in horizons_of(run.task)]
    listed = " and ".join([", ".join(ends[:-1]), ends[-1]]) if len(ends) > 1 else "".join(ends)
    return f"{listed}{unit_of(run)}"
