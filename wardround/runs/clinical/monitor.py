"""Parts of the result of a monitor over real sites: what each told, window by window, and what follows from it."""

from wardround.runs.fields import Many, Number, ResultPart, Text, Whole


class MonitoredWindow(ResultPart):
    """One window of time at one site; counts are in the site's cells."""

    window: Text
    """A month, quarter or year; "all" for the site's windows together."""
    patients: Whole
    """At least so many, and fewer than a cell more in a single window."""
    predicted: Number
    """The mean risk that the site's model predicted, as it was told."""
    low: Number
    high: Number
    """The share with the outcome lies between these, whatever the cells hide."""
    verdict: Text
    """too low or too high, of the predictions; empty where chance or the cells may explain what was seen."""


class MonitoredSite(ResultPart):
    """A site that answered."""

    name: Text
    cell: Whole
    windows: Many[MonitoredWindow]
