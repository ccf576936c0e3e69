"""Energy and CO2: an estimate from processor time and traffic, with its assumptions written beside it.

Computing: busy core-seconds x `watts_per_core` (a server core with its share of memory and power supply draws about
10 to 20 W under load). Network: `watt_hours_per_gb`; Aslan et al., "Electricity Intensity of Internet Data
Transmission", Journal of Industrial Ecology 2018, found 60 Wh per GB in 2015, halving every two years, hence 6 as a
cautious figure for today. CO2: `grams_per_kwh`, about the world's mean for electricity; a country's own figure may lie
between 20 and 800. Accelerators are not counted, and in a simulation the traffic is the one that would have been.
A budget that stops a study can read `report(state)["watt_hours"]` after each round.
"""

from wardround.core.bounds import NotNegative, Positive
from wardround.core.contracts import Meter, Report, RoundRecord


def energy(
    *, watts_per_core: Positive = 15.0, grams_per_kwh: Positive = 480.0, watt_hours_per_gb: NotNegative = 6.0
) -> Meter:
    """Electricity and CO2, estimated from processor time and bytes sent."""

    def observe(state: Report, record: RoundRecord) -> Report:
        return {
            "answers": state["answers"] + record.count,
            "cpu_seconds": state["cpu_seconds"] + record.cpu_seconds,
            "bytes": state["bytes"] + record.bytes_down + record.bytes_up,
        }

    def report(state: Report) -> Report:
        computing = state["cpu_seconds"] * watts_per_core / 3600
        network = state["bytes"] / 1e9 * watt_hours_per_gb
        watt_hours = computing + network
        grams = watt_hours / 1000 * grams_per_kwh
        answers = state["answers"]
        return {
            "watt_hours": watt_hours,
            "watt_hours_computing": computing,
            "watt_hours_network": network,
            "grams_co2": grams,
            "watt_hours_a_site_a_round": watt_hours / answers if answers else None,
            "grams_co2_a_site_a_round": grams / answers if answers else None,
            "assumptions": {
                "watts_per_core": watts_per_core,
                "grams_per_kwh": grams_per_kwh,
                "watt_hours_per_gb": watt_hours_per_gb,
            },
            "words": f"About {watt_hours:.3g} Wh and {grams:.3g} g of CO2, estimated from processor time and traffic.",
        }

    return Meter(lambda: {"answers": 0, "cpu_seconds": 0.0, "bytes": 0}, observe, report)
