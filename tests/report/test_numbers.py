"""Numbers as people read them, each checked by hand."""

import pytest

from wardround.report import numbers
from wardround.runs.scores import MetricValue


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.91449, "0.914"),
        (-0.02, "−0.020"),
        (9.9994, "9.999"),
        (48.26, "48.3"),
        (1234.5, "1,234"),
        (0.00042, "0.00042"),
        (-0.0004, "−0.0004"),
        (0.0, "0.000"),
    ],
)
def test_scores(value: float, text: str) -> None:
    assert numbers.score(value) == text


def test_an_interval_needs_both_ends() -> None:
    assert numbers.interval(MetricValue(value=0.5, low=-0.1, high=1.0)) == "−0.100 to 1.000"
    assert numbers.interval(MetricValue(value=0.5, low=0.4)) == ""


def test_units() -> None:
    assert [numbers.traffic(x) for x in (0, 880, 1_234_567, 25e9)] == ["0 bytes", "880 bytes", "1.2 MB", "25 GB"]
    # 89 s stays in seconds; 300 s are 5 min; 5,399 s are just below 90 min; 7,200 s are 2 h; 40 days are 960 h.
    times = [numbers.time(x) for x in (0.0123, 89, 300, 5399, 7200, 40 * 86400)]
    assert times == ["12 ms", "89 s", "5 min", "90 min", "2 h", "960 h"]
    assert [numbers.energy(x) for x in (0.0021, 3.4, 1800)] == ["2.1 mWh", "3.4 Wh", "1.8 kWh"]
    assert [numbers.mass(x) for x in (0.0053, 2500)] == ["5.3 mg", "2.5 kg"]
    assert [numbers.share(x) for x in (0, 0.004, 0.231, 1)] == ["0 %", "0.4 %", "23 %", "100 %"]


def test_differences_carry_a_sign() -> None:
    assert [numbers.with_sign(x) for x in (0.031, -0.031, 0.0)] == ["+0.031", "−0.031", "0.000"]
