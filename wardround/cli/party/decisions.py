"""Approve, deny, withdraw: what the commands of a site and of a second server have in common.

Imports are inside the functions, so that help loads nothing heavy.
"""

import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.output import AsJson, person_name, require_role, say
from wardround.core.errors import Refusal

if TYPE_CHECKING:
    from wardround.deploy.home import PartyHome
    from wardround.deploy.person_keys import PersonKey

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
KeyFile = Annotated[Path | None, typer.Option("--key", help="Your own key, where roles.toml names keys of persons.")]
Yes = Annotated[bool, typer.Option("--yes", help="Approve without confirmation.")]


def parse_day(word: str | None) -> date | None:
    try:
        return date.fromisoformat(word) if word else None
    except ValueError:
        raise Refusal(f"'{word}' is not a date", where="--until", remedy="write it like 2031-12-31") from None


def who_decides(by: str | None, key: Path | None, home: "PartyHome") -> "tuple[str, PersonKey | None]":
    """Who decides, and the key that signs where the home names keys of persons (roles.toml)."""
    from wardround.deploy.person_keys import read_person_key
    from wardround.deploy.roles import FILE, read_roles

    roles, where = read_roles(home.path), str(home.path / FILE)
    if roles is None or not roles.keys:
        if key is not None:
            raise Refusal("no keys of persons are named here, so nothing is signed", where=where, remedy="omit --key")
        return person_name(by, home), None
    if key is None:
        raise Refusal("decisions here are signed", where=where, remedy="name your own key with --key FILE")
    signer = read_person_key(key, lambda: ask_passphrase(new=False).encode())
    names = [name for name, public in roles.keys.items() if public == signer.public]
    if not names or (by is not None and by not in names):
        whose = f"the key of {names[0]}, not of {by}" if names else f"not among those of {', '.join(roles.keys)}"
        raise Refusal(f"this key is {whose}", where=where, remedy="leave --by out, or sign with a key that is named")
    return by or names[0], signer


def ask_passphrase(*, new: bool) -> str:
    """Of a person's key, at the terminal."""
    if not sys.stdin.isatty():
        raise Refusal("nobody can be asked for the passphrase of your key", remedy="run the command in a terminal")
    text = "Passphrase of your key (empty for none)" if new else "Passphrase of your key"
    typed: str = typer.prompt(text, default="", show_default=False, hide_input=True, confirmation_prompt=new)
    return typed


def add_person_key(app: typer.Typer) -> None:
    """Give a party's commands `person-key`."""

    @app.command("person-key")
    def make(
        file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it: outside the party's folder.")],
        without: Annotated[bool, typer.Option("--without-passphrase", help="Leave the key open.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Make a key of your own to sign decisions with, where roles.toml names keys of persons."""
        from wardround.deploy.person_keys import make_person_key

        made = make_person_key(file, None if without else ask_passphrase(new=True).encode())
        lines = [
            f"Made your key: {file}. Keep it to yourself.",
            "Whoever looks after roles.toml adds you to it:",
            "[keys]",
            f'"YOUR NAME" = "{made.public}"',
        ]
        say({"key": file, "public": made.public}, lines, as_json)


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

    require_role(home, "administer")
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


def deny_study(home: "PartyHome", study: str, by: str | None, why: str, key: Path | None, *, as_json: bool) -> None:
    from wardround.deploy.party.decisions import deny, resolve

    who, signer = who_decides(by, key, home)
    decision = deny(home, resolve(home, study, undecided=True).id, by=who, why=why, key=signer)
    say({"study": decision.id, "state": "denied", "by": decision.by}, [f"{decision.by} denied {decision.id}."], as_json)


def withdraw_approval(
    home: "PartyHome", study: str, by: str | None, why: str, key: Path | None, consequence: str, *, as_json: bool
) -> None:
    from wardround.deploy.party.decisions import resolve, withdraw

    who, signer = who_decides(by, key, home)
    decision = withdraw(home, resolve(home, study).id, by=who, why=why, key=signer)
    lines = [f"{decision.by} withdrew from {decision.id}: {consequence}"]
    say({"study": decision.id, "state": "withdrawn", "by": decision.by}, lines, as_json)
