"""Privacy spent: epsilon for one patient and for a whole site, from the steps that were executed.

Needs what a study with a [privacy] table writes into its round records: noise, sampling rates, numbers of steps. For a
patient of a site every noised sum of that site counts; for whole sites every round. Costs a second or so at the end.
What is taken to be public is said with it.
"""

import json
from collections.abc import Mapping
from math import inf, isfinite
from typing import Any

from wardround.core.contracts import Meter, Report, RoundRecord
from wardround.privacy.accountant import Step, epsilon, merge_steps, renyi_epsilon
from wardround.privacy.distributed_noise import epsilon_from_rho

MOST_TIGHT = 12
"""Different sums of steps accounted for tightly; with more, the rest by the quicker and larger bound."""
NOT_COVERED = (
    "Taken to be public: names and kinds of the columns, labels of the outcome, and numbers of rows. "
    "Statistics, losses and figures that leave a real site have noise of their own; "
    "the final figures of a simulation are exact."
)
ANY = "every site, at most"


def privacy() -> Meter:
    """Privacy spent: epsilon for a patient and for a whole site."""

    def observe(state: Report, record: RoundRecord) -> Report:
        told = record.measures.get("privacy") if isinstance(record.measures, Mapping) else None
        if not told:
            return {**state, "open_rounds": state["open_rounds"] + (record.round > 0)}
        ledgers = {kind: dict(state[kind]) for kind in ("patients", "whole_sites", "coordinator")}
        for kind, ledger in ledgers.items():
            for site, steps in told.get(kind, {}).items():
                before = ledger.get(site, [])
                ledger[site] = [list(step) for step in merge_steps(Step(*one) for one in [*before, *steps])]
        words = {key: told[key] for key in ("level", "delta", "noise_multiplier", "clip")}
        words["overflow"] = state["overflow"] + told.get("overflow", 0.0)
        words["concentrated"] = state["concentrated"] or told.get("concentrated", False)
        return {**state, **ledgers, **words, "rounds": state["rounds"] + 1}

    return Meter(
        lambda: {
            "rounds": 0,
            "open_rounds": 0,
            "overflow": 0.0,
            "concentrated": False,
            "level": None,
            "patients": {},
            "whole_sites": {},
            "coordinator": {},
        },
        observe,
        report_epsilons,
    )


def report_epsilons(state: Report) -> Report:
    """Epsilons, none where there is no bound; `words` say the same for a reader."""
    if state["level"] is None:
        return {"level": None, "sample_epsilon": None, "site_epsilon": None, "words": "No formal privacy guarantee."}
    delta = state["delta"]
    within = delta - state["overflow"]
    patients, whole, alone = (
        {} if state["open_rounds"] else epsilons(state[kind], within, discrete=state["concentrated"])
        for kind in ("patients", "whole_sites", "coordinator")
    )
    sample, site, coordinator = (largest_epsilon(one) for one in (patients, whole, alone))
    patient, whole_site = describe_epsilon("A patient", sample, delta), describe_epsilon("A whole site", site, delta)
    return {
        "level": state["level"],
        "delta": delta,
        "noise_multiplier": state["noise_multiplier"],
        "clip": state["clip"],
        "rounds": state["rounds"],
        "steps": {site: steps for site, steps in state["patients"].items() if state["level"] == "sample"},
        "sample_epsilon": sample,
        "sample_epsilon_by_site": patients,
        "site_epsilon": site,
        "site_epsilon_towards_coordinator": coordinator,
        "words": f"{patient} {whole_site} {NOT_COVERED}",
    }


def describe_epsilon(who: str, spent: float | None, delta: float) -> str:
    if spent is None:
        return f"{who} has no formal guarantee."
    return f"{who} is protected with epsilon {spent:.3g} at delta {delta:g}."


def largest_epsilon(spent: Mapping[str, float | None]) -> float | None:
    """Of all sites; none where one has no bound, or nothing was told."""
    values = list(spent.values())
    return None if not values or None in values else max(value for value in values if value is not None)


def epsilons(ledger: Mapping[str, Any], delta: float, *, discrete: bool = False) -> dict[str, float | None]:
    """Every site's epsilon; sites that did the same share one computation.

    `discrete` noise, in whole numbers, is known by its concentrated privacy, 1 / (2 z²) a step, and by no more.
    """
    if delta <= 0:
        return dict.fromkeys(ledger)
    if discrete:
        rhos = {site: sum(times / (2 * noise**2) for _, noise, times in steps) for site, steps in ledger.items()}
        costs = {rho: epsilon_from_rho(rho, delta) for rho in set(rhos.values())}
        return {site: costs[rho] for site, rho in rhos.items()}
    plans = {json.dumps(steps): [Step(*one) for one in steps] for steps in ledger.values()}
    rough = {name: renyi_epsilon(steps, delta) for name, steps in plans.items()}
    dearest = sorted(rough, key=lambda name: -rough[name])[:MOST_TIGHT]
    found = {**rough, **{name: epsilon(plans[name], delta) for name in dearest}}
    spent = {site: found[json.dumps(steps)] for site, steps in ledger.items()}
    return {site: value if isfinite(value) and value < inf else None for site, value in spent.items()}
