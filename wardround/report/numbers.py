"""Numbers as people read them: scores with intervals, bytes, times, energy, shares."""

from collections.abc import Sequence

from wardround.runs.scores import MetricValue

MINUS = "−"


def score(value: float) -> str:
    """Three decimals for what is of the order of one, fewer for larger numbers, two digits for tiny ones.

    >>> score(0.91449), score(-0.02), score(48.26), score(1234.5), score(0.00042)
    ('0.914', '−0.020', '48.3', '1,234', '0.00042')
    """
    size = abs(value)
    if size == 0 or 0.001 <= size < 10:
        text = f"{size:.3f}"
    elif size < 0.001:
        text = f"{size:.2g}"
    elif size < 1000:
        text = f"{size:.1f}"
    else:
        text = f"{size:,.0f}"
    return MINUS + text if value < 0 else text


def interval(measure: MetricValue) -> str:
    """The interval in words, empty when there is none."""
    if measure.low is None or measure.high is None:
        return ""
    return f"{score(measure.low)} to {score(measure.high)}"


def with_interval(value: float, measure: MetricValue) -> tuple[str, tuple[str, ...]]:
    """The score of a measure, and what stands beside it: its interval and its note, where there are any."""
    return score(value), tuple(part for part in (interval(measure), measure.note) if part)


def with_sign(value: float) -> str:
    return "+" + score(value) if value > 0 else score(value)


def count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def share(value: float) -> str:
    """
    >>> share(0.231), share(0.004)
    ('23 %', '0.4 %')
    """
    percent = 100 * value
    return f"{percent:.1f} %" if 0 < percent < 1 else f"{percent:.0f} %"


def short_number(amount: float) -> str:
    return f"{amount:.2g}" if amount < 10 else f"{amount:,.0f}"


def with_unit(value: float, units: Sequence[tuple[float, str]]) -> str:
    """The number in the largest unit that leaves at least one of it."""
    size, unit = next((entry for entry in units if value >= entry[0]), units[-1])
    return f"{short_number(value / size)} {unit}"


def traffic(value: float) -> str:
    """
    >>> traffic(1_234_567), traffic(880), traffic(25_000_000_000)
    ('1.2 MB', '880 bytes', '25 GB')
    """
    return with_unit(value, ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes")))


def time(value: float) -> str:
    """
    >>> time(0.0123), time(42), time(300), time(7200)
    ('12 ms', '42 s', '5 min', '2 h')
    """
    if value < 90:
        return with_unit(value, ((1, "s"), (1e-3, "ms")))
    # A minute and a half says more as 90 s, and an hour and a quarter as 75 min.
    return f"{short_number(value / 60)} min" if value < 5400 else f"{short_number(value / 3600)} h"


def energy(value: float) -> str:
    """
    >>> energy(0.0021), energy(3.4), energy(1800)
    ('2.1 mWh', '3.4 Wh', '1.8 kWh')
    """
    return with_unit(value, ((1e3, "kWh"), (1, "Wh"), (1e-3, "mWh"), (1e-6, "µWh")))


def mass(value: float) -> str:
    return with_unit(value, ((1e3, "kg"), (1, "g"), (1e-3, "mg"), (1e-6, "µg")))
