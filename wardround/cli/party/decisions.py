"""Approve, deny, withdraw: what the commands of a site and of a second server have in common.

Imports are inside the functions, so that help loads nothing heavy.
"""

import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.output import person_name, say
from wardround.core.errors import Refusal

if TYPE_CHECKING:
    from wardround.deploy.home import PartyHome

Certificate = Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="The signed certificate (.pem).")]
Authority = Annotated[Path, typer.Argument(metavar="AUTHORITY", help="The consortium's authority.pem.")]
OneStudy = Annotated[str | None, typer.Argument(metavar="[STUDY]", help="Show this study in full.")]
OnlyStudy = Annotated[str | None, typer.Option("--study", help="Only entries about this study.")]
By = Annotated[str | None, typer.Option("--by", help="Your name (default: the logged-in user).")]
Why = Annotated[str, typer.Option("--why", help="The reason, which is sent to the coordinator.")]
Until = Annotated[str | None, typer.Option("--until", help="The last day of the approval, such as 2031-12-31.")]
Yes = Annotated[bool, typer.Option("--yes", help="Approve without confirmation.")]

STATES = {"ok": "approved", "waiting": "waiting for your decision"}
"""How a list of studies names their states; the others are words already."""


def parse_day(word: str | None) -> date | None:
    try:
        return date.fromisoformat(word) if word else None
    except ValueError:
        raise Refusal(f"'{word}' is not a date", where="--until", remedy="write it like 2031-12-31") from None


def confirm_approval(study: str, who: str, *, as_json: bool) -> None:
    """Ask at the terminal; whoever says no ends the command."""
    if as_json or not sys.stdin.isatty():
        raise Refusal("this is not an interactive terminal", where=study, remedy="approve in a terminal, or add --yes")
    if not typer.confirm(f"\nApprove this study as {who}?", default=False):
        typer.echo("No decision was made.")
        raise typer.Exit(1)


def deny_study(home: "PartyHome", study: str, by: str | None, why: str, *, as_json: bool) -> None:
    from wardround.deploy.party.decisions import deny, resolve

    decision = deny(home, resolve(home, study, undecided=True).id, by=person_name(by, home), why=why)
    say({"study": decision.id, "state": "denied", "by": decision.by}, [f"{decision.by} denied {decision.id}."], as_json)


def withdraw_approval(
    home: "PartyHome", study: str, by: str | None, why: str, consequence: str, *, as_json: bool
) -> None:
    from wardround.deploy.party.decisions import resolve, withdraw

    decision = withdraw(home, resolve(home, study).id, by=person_name(by, home), why=why)
    lines = [f"{decision.by} withdrew from {decision.id}: {consequence}"]
    say({"study": decision.id, "state": "withdrawn", "by": decision.by}, lines, as_json)
