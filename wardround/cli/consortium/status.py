"""How a coordinator stands, in words: the sites, every study with what goes on in it, and who has to act next."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from wardround.cli.output import ago, since_words

STAGES = {
    "query": "agreeing on columns",
    "settle": "agreeing on columns",
    "prepare": "preparing rows",
    "begin": "sending the first model",
    "round": "training",
    "secure": "training, summed unseen",
    "halves": "training, for two servers",
    "judge": "validating the model",
    "figures": "judging the model on test patients",
    "finish": "sending the final model",
    "agree": "agreeing on columns",
    "analysis": "summing",
}
"""What is going on while sites are asked something."""
LISTED = 20
"""Studies that are shown unless all are asked for; those that wait or run are always shown."""


def status_lines(facts: Mapping[str, Any], *, now: float | None = None, every: bool = True) -> list[str]:
    moment = time.time() if now is None else now
    runs = f"listens at {facts['listen']}" if facts["running"] else "is not running (wardround coordinator start)"
    since = f" since {since_words(facts['since'], moment)}" if facts["running"] and facts.get("since") else ""
    lines = [f"The coordinator of {facts['consortium']} {runs}{since}.", "", "Sites"]
    lines += [f"  {site['name']}: {site_words(site, facts['running'], moment)}" for site in facts["sites"]] or [
        "  none yet"
    ]
    lines += ["", "Studies, the newest first"]
    shown = [
        one
        for index, one in enumerate(facts["studies"])
        if every or index < LISTED or one["state"] in ("queued", "running")
    ]
    for one in shown:
        lines += study_lines(one, moment)
    if len(shown) < len(facts["studies"]):
        lines.append(f"  and {len(facts['studies']) - len(shown)} older ones (--all)")
    return lines if facts["studies"] else [*lines, "  none yet"]


def study_lines(one: Mapping[str, Any], now: float) -> list[str]:
    """One study: its state and since when, what goes on, and the next steps."""
    from wardround.core.text import format_bytes

    course = f"monitors {one['monitors']}" if one.get("monitors") else f"round {one['round']} of {one['rounds']}"
    since = f" since {since_words(one['since'], now)}" if one.get("since") else ""
    words = f"  {one['study']}: {state_words(one)}{since}, {course}"
    words += f"; {format_bytes(one['bytes_down'])} to the sites, {format_bytes(one['bytes_up'])} back"
    if one["epsilon"] is not None:
        words += f"; epsilon {one['epsilon']:g}"
    if one.get("epsilon_so_far") is not None:
        words += f"; at most {one['epsilon_so_far']:.3g} spent so far"
    lines = [words + (f"; {one['why']}" if one["why"] else "")]
    if one["state"] == "running":
        lines.append(f"    {doing_words(one)}deadline per site: {one['seconds_a_site']:.0f} s")
    lines += [f"    {note}" for note in one.get("compression", ())]
    if one["state"] == "queued" and one.get("approved"):
        lines.append(f"    approved by {', '.join(one['approved'])}")
    lines += [f"    without {site}: {why}" for site, why in sorted((one.get("left_out") or {}).items())]
    pending = one.get("pending") or {}
    lines += [f"    {site}: {why}" for site, why in sorted(pending.items()) if one["state"] == "queued" and why]
    lines += [f"    next: {step['who']}, {step['what']}: {step['command']}" for step in one.get("next", ())]
    return lines


def state_words(one: Mapping[str, Any]) -> str:
    """A queued study waits for decisions, which is what people want to read."""
    return "waiting for approval" if one["state"] == "queued" else str(one["state"])


def doing_words(one: Mapping[str, Any]) -> str:
    doing, words = one.get("doing"), ""
    if doing:
        words = STAGES.get(doing["topic"], str(doing["topic"]))
        if doing["missing"]:
            words += f", {doing['answered']} answered, waiting for {', '.join(doing['missing'])}"
        words += "; "
    left = one.get("seconds_left")
    return words + (f"about {ago(left)} left; " if left else "")


def site_words(site: Mapping[str, Any], alive: bool, now: float = 0.0) -> str:
    if site["revoked"]:
        return f"revoked on {site['revoked'][:10]}"
    words = ("connected" if site["present"] else "not connected") if alive else "not known"
    since = f" since {since_words(site['since'], now)}" if alive and site.get("since") else ""
    late = f", {site['late']}" if site["late"] else ""
    late += f", {transfer_words(site['moving'])}" if site.get("moving") else ""
    late += f", line of {site['line']:g} Mbit/s" if site.get("line") else ""
    warning = f"; {site['warning']}" if site["warning"] else ""
    version = f"wardround {site['version']}, " if site.get("version") else ""
    until = f"certificate until {site['until']}"
    if site.get("expired"):
        until = f"certificate expired on {site['until']}: wardround coordinator renew {site['name']}"
    return f"{words}{since}{late}{warning} ({version}{until})"


def transfer_words(moving: Mapping[str, Any]) -> str:
    """A transfer that takes long: how far, how fast, and how long it will take at that speed."""
    from wardround.core.text import format_bytes

    way = {"down": "receiving", "up": "sending"}.get(moving["way"], "sending and receiving")
    words = f"{way} {format_bytes(moving['moved'])} of {format_bytes(moving['of'])}"
    rate = moving["moved"] / moving["seconds"] if moving["seconds"] > 0 else 0.0
    if rate > 0:
        words += f" at {format_bytes(int(rate))} a second, about {ago((moving['of'] - moving['moved']) / rate)} left"
    return words


def watch(show: Callable[[], None], seconds: float = 2.0) -> None:
    """Show anew until Ctrl-C; a terminal is cleared in between."""
    import sys

    import click
    import typer

    try:
        while True:
            if sys.stdout.isatty():
                click.clear()
            show()
            time.sleep(seconds)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
