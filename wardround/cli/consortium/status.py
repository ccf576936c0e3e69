"""How a coordinator stands, in words."""

from collections.abc import Mapping
from typing import Any


def status_lines(facts: Mapping[str, Any]) -> list[str]:
    from wardround.core.text import format_bytes

    runs = f"listens at {facts['listen']}" if facts["running"] else "is not running (wardround coordinator start)"
    lines = [f"The coordinator of {facts['consortium']} {runs}.", "", "Sites"]
    lines += [f"  {site['name']}: {site_words(site, facts['running'])}" for site in facts["sites"]] or ["  none yet"]
    lines += ["", "Studies"]
    for one in facts["studies"]:
        course = f"monitors {one['monitors']}" if one.get("monitors") else f"round {one['round']} of {one['rounds']}"
        words = f"  {one['study']}: {one['state']}, {course}"
        words += f"; {format_bytes(one['bytes_down'])} to the sites, {format_bytes(one['bytes_up'])} back"
        if one["epsilon"] is not None:
            words += f"; epsilon {one['epsilon']:g}"
        if one.get("epsilon_so_far") is not None:
            words += f"; at most {one['epsilon_so_far']:.3g} spent so far"
        lines.append(words + (f"; {one['why']}" if one["why"] else ""))
        if one["state"] == "running":
            lines.append(f"    deadline per site: {one['seconds_a_site']:.0f} s")
    return lines if facts["studies"] else [*lines, "  none yet"]


def site_words(site: Mapping[str, Any], alive: bool) -> str:
    if site["revoked"]:
        return f"revoked on {site['revoked'][:10]}"
    words = ("connected" if site["present"] else "not connected") if alive else "not known"
    late = f", {site['late']}" if site["late"] else ""
    warning = f"; {site['warning']}" if site["warning"] else ""
    version = f"wardround {site['version']}, " if site.get("version") else ""
    return f"{words}{late}{warning} ({version}certificate until {site['until']})"
