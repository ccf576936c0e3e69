"""Energy by hand."""

import json

import pytest

from wardround.core.contracts import RoundRecord
from wardround.meters.energy import energy


def record(count: int, cpu_seconds: float, down: int, up: int) -> RoundRecord:
    return RoundRecord(1, (), count, 100, 0.1, cpu_seconds, down, up)


def test_one_core_hour_and_one_gigabyte_by_hand() -> None:
    meter = energy(watts_per_core=20, grams_per_kwh=500, watt_hours_per_gb=5)
    state = meter.init()
    for _ in range(2):
        state = meter.observe(state, record(2, 1800, 400_000_000, 100_000_000))
    report = meter.report(json.loads(json.dumps(state)))
    # 3600 s x 20 W = 20 Wh; 1 GB x 5 Wh = 5 Wh; 0.025 kWh x 500 g = 12.5 g; four answers.
    assert report["watt_hours_computing"] == pytest.approx(20)
    assert report["watt_hours_network"] == pytest.approx(5)
    assert report["watt_hours"] == pytest.approx(25)
    assert report["grams_co2"] == pytest.approx(12.5)
    assert report["watt_hours_a_site_a_round"] == pytest.approx(25 / 4)
    assert report["words"] == "About 25 Wh and 12.5 g of CO2, estimated from processor time and traffic."
    assert report["assumptions"] == {"watts_per_core": 20, "grams_per_kwh": 500, "watt_hours_per_gb": 5}


def test_the_default_assumptions() -> None:
    meter = energy()
    report = meter.report(meter.observe(meter.init(), record(1, 240, 0, 0)))
    # 240 s x 15 W = 1 Wh, 0.001 kWh x 480 g.
    assert (report["watt_hours"], report["grams_co2"]) == (pytest.approx(1), pytest.approx(0.48))


def test_nothing_done_costs_nothing() -> None:
    report = energy().report(energy().init())
    assert report["watt_hours"] == report["grams_co2"] == 0
    assert report["watt_hours_a_site_a_round"] is None


def test_it_says_whose_computing_it_is() -> None:
    meter = energy(computing="coordinator")
    told = meter.report(meter.observe(meter.init(), record(1, 240, 0, 0)))
    assert "the coordinator's; what the sites' computers used is not in it" in told["words"]
    assert told["watt_hours"] == pytest.approx(1)
    assert "each site sees its own" in told["words"]
