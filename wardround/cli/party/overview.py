"""`wardround site status` and the list of studies, in words."""

import time
from collections.abc import Mapping
from typing import Any

from wardround.cli.output import since_words

STATES = {"ok": "approved", "waiting": "waiting for your decision"}
"""How a list of studies names their states; the others are words already."""


def study_line(one: Mapping[str, Any], now: float | None = None) -> str:
    """One study in a line: its state and since when, who asks, why, and what to do."""
    moment = time.time() if now is None else now
    state = STATES.get(one["state"], str(one["state"]))
    if one["ended"]:
        state = f"{one['ended']}, says the coordinator" + (f" (now {one['replaced']})" if one["replaced"] else "")
    words = f"{one['study']}: {state} since {since_words(one['since'], moment)}, "
    words += f"from {one['submitter'] or 'an unnamed submitter'}"
    told = one["why"] if one["ended"] or one["state"] not in STATES else ""
    words += (f"; {told}" if told else "") + energy_words(one.get("energy"))
    return words + (f"; next: {one['next']}" if one["next"] else "")


def energy_words(used: Mapping[str, Any] | None) -> str:
    """What this site's own computer used for a study; nobody else is told."""
    if used is None:
        return ""
    taken = f"{used['processor_seconds']:,.0f} s of processor time"
    return f"; used here {taken}, about {used['watt_hours']:.2g} Wh and {used['grams_co2']:.2g} g of CO2"


def site_lines(facts: Mapping[str, Any], now: float | None = None) -> list[str]:
    moment = time.time() if now is None else now
    if not facts["running"]:
        runs = "is not running"
    elif facts["connected"]:
        runs = f"is connected to {facts['coordinator']}"
    else:
        runs = f"is not connected to {facts['coordinator']}" + (f": {facts['why']}" if facts["why"] else "")
    last = f" Last answer: {since_words(facts['last_answer'], moment)}." if facts["last_answer"] else ""
    lines = [f"{facts['site']} {runs.rstrip('.')}.{last}"]
    if facts["revoked"]:
        lines.append(
            f"The coordinator revoked it on {facts['revoked'].get('when', '')[:10]}: {facts['revoked']['why']}"
        )
    if facts["until"]:
        aged = " (expired)" if facts["expired"] else " (renewed when it connects)" if facts["due"] else ""
        lines.append(
            f"Certificate until {facts['until']}{aged}. Data: {', '.join(facts['data']) or 'none registered'}."
        )
    else:
        lines.append("It has not joined a consortium yet.")
    lines += ["", "Studies"]
    lines += [f"  {study_line(one, moment)}" for one in facts["studies"]] or ["  none yet"]
    lines += ["", "Next", *(f"  {one}" for one in facts["next"])] if facts["next"] else ["", "Nothing to do."]
    return lines
