"""Energy and CO2: an estimate from processor time and traffic, with its assumptions written beside it.

Computing: busy core-seconds x `watts_per_core` (a server core with its share of memory and power supply draws about
10 to 20 W under load). Network: `watt_hours_per_gb`; Aslan et al., "Electricity Intensity of Internet Data
Transmission", Journal of Industrial Ecology 2018, found 60 Wh per GB in 2015, halving every two years, hence 6 as a
cautious figure for today. CO2: `grams_per_kwh`, about the world's mean for electricity; a country's own figure may lie
between 20 and 800. Accelerators are not counted, and in a simulation the traffic is the one that would have been.
Where a record tells `joules` that were measured (a study with a [budget] on a machine that lets them be read), these
count instead of processor time. `computing` says whose computing the records tell of: in a simulation that of all
sites, over real sites that of the coordinator's computer alone, at a site its own. `site_grams_per_kwh` are the factors
of sites that know their own. Beside the totals: per site and round, and per percentage point of
validation accuracy gained since the first evaluation.
"""

from collections.abc import Sequence
from typing import Literal

from wardround.core.bounds import NotNegative, Positive
from wardround.core.contracts import Meter, Report, RoundRecord

WHOSE = {
    "everybody": "",
    "coordinator": " The processor is the coordinator's; what the sites' computers used is not in it: each site sees"
    " its own with `wardround site status`.",
    "site": " Of this site's computer alone; the network is not in it.",
}


def energy(
    *,
    watts_per_core: Positive = 15.0,
    grams_per_kwh: NotNegative = 480.0,
    watt_hours_per_gb: NotNegative = 6.0,
    site_grams_per_kwh: dict[str, float] | None = None,
    computing: Literal["everybody", "coordinator", "site"] = "everybody",
) -> Meter:
    """Electricity and CO2, estimated from processor time and bytes sent."""

    def intensity(sites: Sequence[str]) -> float:
        """The mean over the sites of a round; where they are too many to be named, what holds for all."""
        own = [(site_grams_per_kwh or {}).get(site, grams_per_kwh) for site in sites]
        return sum(own) / len(own) if own else grams_per_kwh

    def observe(state: Report, record: RoundRecord) -> Report:
        joules = record.measures.get("joules")
        used = record.cpu_seconds * watts_per_core / 3600 if joules is None else float(joules) / 3600
        sent = (record.bytes_down + record.bytes_up) / 1e9 * watt_hours_per_gb
        return {
            "answers": state["answers"] + record.count,
            "computing": state["computing"] + used,
            "network": state["network"] + sent,
            "grams": state["grams"] + (used + sent) / 1000 * intensity(record.sites),
            "measured": state["measured"] or joules is not None,
            "accuracies": widest(state["accuracies"], accuracy_of(record)),
        }

    def report(state: Report) -> Report:
        used, network, grams = state["computing"], state["network"], state["grams"]
        watt_hours = used + network
        answers = state["answers"]
        how = "measured at the processor" if state["measured"] else "estimated from processor time"
        how += "" if computing == "site" else " and traffic"
        points = gained_points(*state["accuracies"])
        return {
            "watt_hours": watt_hours,
            "watt_hours_computing": used,
            "watt_hours_network": network,
            "grams_co2": grams,
            "watt_hours_a_site_a_round": watt_hours / answers if answers else None,
            "grams_co2_a_site_a_round": grams / answers if answers else None,
            "watt_hours_a_point": watt_hours / points if points else None,
            "grams_co2_a_point": grams / points if points else None,
            "assumptions": {
                "watts_per_core": watts_per_core,
                "grams_per_kwh": grams_per_kwh,
                "watt_hours_per_gb": watt_hours_per_gb,
            },
            "words": f"About {watt_hours:.3g} Wh and {grams:.3g} g of CO2, {how}.{WHOSE[computing]}",
        }

    start = {"answers": 0, "computing": 0.0, "network": 0.0, "grams": 0.0, "measured": False}
    return Meter(lambda: {**start, "accuracies": [None, None]}, observe, report)


def accuracy_of(record: RoundRecord) -> float | None:
    """The share of validation patients classified rightly, where the round was evaluated."""
    found = record.measures.get("validation_accuracy", {}).get("weighted")
    return None if found is None else float(found)


def widest(known: Sequence[float | None], now: float | None) -> list[float | None]:
    """The first accuracy that was told, and the best."""
    first, best = known
    return [now if first is None else first, max((one for one in (best, now) if one is not None), default=None)]


def gained_points(first: float | None, best: float | None) -> float | None:
    """Percentage points by which validation accuracy rose after the first evaluation; none where it did not."""
    return 100 * (best - first) if first is not None and best is not None and best > first else None
