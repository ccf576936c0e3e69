"""Bytes added up by hand."""

import json

import pytest

from wardround.core.contracts import RoundRecord
from wardround.meters.traffic import traffic


def record(number: int, count: int, down: int, up: int) -> RoundRecord:
    return RoundRecord(number, (), count, 100, 0.1, 0.2, down, up)


def test_two_rounds_by_hand() -> None:
    meter = traffic()
    start = meter.init()
    state = meter.observe(meter.observe(start, record(1, 4, 8_000, 2_000)), record(2, 1, 2_000, 500))
    assert start == meter.init()
    report = meter.report(json.loads(json.dumps(state)))
    assert (report["bytes_down"], report["bytes_up"], report["rounds"]) == (10_000, 2_500, 2)
    # Five answers in all: four sites in the first round, one in the second.
    assert report["bytes_down_a_site_a_round"] == 2_000
    assert report["bytes_up_a_site_a_round"] == 500
    assert report["words"] == (
        "10 kB to the sites and 2.5 kB back in 2 rounds; per site and round: 2 kB down, 500 bytes up."
    )


def test_nobody_took_part() -> None:
    report = traffic().report(traffic().init())
    assert report["bytes_down_a_site_a_round"] is None
    assert report["words"] == "No site took part; nothing was sent."


def test_bytes_for_a_point_of_accuracy() -> None:
    """From 70 % to 75 % and back to 74 %: five points for 600 bytes."""
    meter = traffic()
    state = meter.init()
    for number, accuracy in ((1, 0.70), (2, 0.75), (3, 0.74)):
        measures = {"validation_accuracy": {"weighted": accuracy}}
        state = meter.observe(state, RoundRecord(number, ("a",), 1, 10, 1.0, 1.0, 100, 100, measures))
    assert meter.report(state)["bytes_a_point"] == pytest.approx(120)
    assert meter.report(meter.init())["bytes_a_point"] is None
