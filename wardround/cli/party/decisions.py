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
Authority = Annotated[
    Path | None,
    typer.Argument(metavar="[AUTHORITY]", help="The consortium's authority.pem; not needed for a renewal."),
]
AuthorityWords = Annotated[
    str | None,
    typer.Option("--words", help="The ten words of the authority's key, as the coordinator read them out."),
]
OneStudy = Annotated[str | None, typer.Argument(metavar="[STUDY]", help="Show this study in full.")]
OnlyStudy = Annotated[str | None, typer.Option("--study", help="Only entries about this study.")]
By = Annotated[str | None, typer.Option("--by", help="Your name (default: the logged-in user).")]
Why = Annotated[str, typer.Option("--why", help="The reason, which is sent to the coordinator.")]
Until = Annotated[str | None, typer.Option("--until", help="The last day of the approval, such as 2031-12-31.")]
Yes = Annotated[bool, typer.Option("--yes", help="Approve without confirmation.")]


def parse_day(word: str | None) -> date | None:
    try:
        return date.fromisoformat(word) if word else None
    except ValueError:
        raise Refusal(f"'{word}' is not a date", where="--until", remedy="write it like 2031-12-31") from None


def confirm_approval(study: str, who: str, *, as_json: bool) -> None:
    """Ask at the terminal; whoever says no ends the command."""
    confirm_decision(study, f"\nApprove this study as {who}?", as_json=as_json)


def confirm_decision(study: str, question: str, *, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise Refusal("this is not an interactive terminal", where=study, remedy="approve in a terminal, or add --yes")
    if not typer.confirm(question, default=False):
        typer.echo("No decision was made.")
        raise typer.Exit(1)


def join_consortium(
    home: "PartyHome", certificate: Path, authority: Path | None, words: str | None, did: str, *, as_json: bool
) -> None:
    """Take in a certificate; shows the words of both keys, to be compared by telephone."""
    from wardround.deploy.party.enrolment import authority_words, join
    from wardround.deploy.trust.certificates import read_certificate
    from wardround.deploy.trust.fingerprints import fingerprint

    issued = join(home, certificate, authority, words or "")
    until, own = f"{issued.until:%Y-%m-%d}", fingerprint(home.key.public_key())
    root = authority_words(read_certificate(home.authority_path))
    compared = "the same as you gave" if words else "compare them with the coordinator's by phone"
    lines = [
        f"{issued.name} {did} until {until}. Next: wardround {home.role} start",
        f"Words of the authority's key, {compared}: {root}",
        f"Words of its own key, for your partners: {own}",
    ]
    facts = {home.role: issued.name, "serial": issued.serial, "until": until, "fingerprint": own, "authority": root}
    say({**facts, "compared": bool(words)}, lines, as_json)


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
