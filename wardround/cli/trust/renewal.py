"""`wardround coordinator renew`: a new certificate for whoever was away when the old one ended.

Imports are inside the commands, so that help loads nothing heavy.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.output import say
from wardround.cli.trust.admission import admission_facts
from wardround.cli.trust.authority import PassphraseFile, read_passphrase

if TYPE_CHECKING:
    from wardround.deploy.home import CoordinatorHome

Party = Annotated[str | None, typer.Argument(metavar="[SITE]", help="The site; none: the coordinator itself.")]
Authority = Annotated[Path | None, typer.Option("--authority", help="The authority's folder, if it is elsewhere.")]


def renew_certificate(
    home: "CoordinatorHome", name: str | None, authority: Path | None, passphrase_file: PassphraseFile, *, as_json: bool
) -> None:
    """Sign anew what the coordinator knows already: a name and its key. A revoked site is refused."""
    from wardround.deploy.coordinator.consortium import renew_absent, sign_own
    from wardround.deploy.trust.certificates import certificate_summary, is_encrypted, read_certificate

    key = (authority or home.path) / "authority.key"
    passphrase = read_passphrase(passphrase_file, new=False) if is_encrypted(key) else None
    if name is not None and name != home.own_name:
        made = renew_absent(home, name, authority, passphrase)
        lines = [
            f"{made.name} renewed until {made.until:%Y-%m-%d}, with the key that it has.",
            f"Send it {made.path} (it is not secret). There: wardround site join {made.path.name}",
        ]
        say(admission_facts(home, made), lines, as_json)
        return
    waiting = sign_own(home, authority, passphrase)
    if waiting is not None:
        how = f"wardround authority sign {waiting.name} --coordinator --folder FOLDER"
        lines = [
            f"The authority's key cannot be used from here. Take {waiting} to it: {how}",
            f"Then here: wardround coordinator accept {home.own_name}.pem",
        ]
        say({"coordinator": home.own_name, "waiting": waiting}, lines, as_json)
        return
    until = f"{certificate_summary(read_certificate(home.certificate_path)).until:%Y-%m-%d}"
    lines = [f"{home.own_name} renewed until {until}. A coordinator that is running starts anew between two studies."]
    say({"coordinator": home.own_name, "until": until}, lines, as_json)
