"""`wardround authority`: the consortium's authority in a folder of its own, on another machine or a stick.

Imports are inside the commands, so that help loads nothing heavy.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.output import AsJson, say
from wardround.core.errors import Refusal

authority_app = typer.Typer(
    help="Keep the consortium's authority away from the coordinator, and sign with it.", no_args_is_help=True
)

Folder = Annotated[Path, typer.Option("--folder", help="The authority's folder, such as one on a stick.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file", help="A file with the passphrase (default: $WARDROUND_PASSPHRASE, or asked for)."
    ),
]


WithoutPassphrase = Annotated[
    bool, typer.Option("--without-passphrase", help="Leave the authority's key unencrypted, as for a test.")
]


def read_passphrase(file: Path | None, *, new: bool, without: bool = False) -> str | None:
    """The passphrase of the authority's key: from a file, the environment, or the person at the terminal.

    Nobody makes a `new` key that lies open unless it is said so: a script that forgot the passphrase is refused.
    """
    from wardround.deploy.trust.certificates import PASSPHRASE

    if file is not None:
        try:
            found = file.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise Refusal(
                f"the passphrase cannot be read: {error.strerror}", where=str(file), remedy="check the path"
            ) from None
        if not found or not found[0].strip():
            raise Refusal("the first line is empty", where=str(file), remedy="write the passphrase into it")
        return found[0]
    given = os.environ.get(PASSPHRASE)
    if given or without:
        return given
    if not sys.stdin.isatty():
        if new:
            raise Refusal(
                "no passphrase was given, and nobody can be asked for one",
                where="the authority's key",
                remedy=f"name a file with --passphrase-file, set {PASSPHRASE}, or say --without-passphrase",
            )
        return None
    text = "Passphrase of the authority's key (empty for none)" if new else "Passphrase of the authority's key"
    typed: str = typer.prompt(text, default="", show_default=False, hide_input=True, confirmation_prompt=new)
    return typed or None


@authority_app.command()
def init(
    consortium: Annotated[str, typer.Argument(metavar="CONSORTIUM", help="The consortium's name.")],
    folder: Folder,
    passphrase_file: PassphraseFile = None,
    without_passphrase: WithoutPassphrase = False,
    as_json: AsJson = False,
) -> None:
    """Create the authority's key, encrypted with a passphrase, and its certificate."""
    from wardround.deploy.trust.authority import begin_authority, key_warnings

    passphrase = read_passphrase(passphrase_file, new=True, without=without_passphrase)
    begin_authority(folder, consortium, passphrase)
    warnings = key_warnings(folder, listens=False)
    lines = [
        f"Created the authority of {consortium}: {folder}",
        f"1. Take {folder / 'authority.pem'} (not the key) to the coordinator's machine, into a folder of its own.",
        f"2. There: wardround coordinator init {consortium} --name hub --authority THAT_FOLDER --host ITS_ADDRESS",
        "3. Bring the files in its folder requests here, its own first:"
        f" wardround authority sign hub.json --coordinator --folder {folder}",
        *(f"Warning: {one}." for one in warnings),
    ]
    say({"consortium": consortium, "folder": folder, "warnings": warnings}, lines, as_json)


@authority_app.command()
def sign(
    requests: Annotated[list[Path], typer.Argument(metavar="REQUEST...", help="Requests (.json, .csr).")],
    folder: Folder,
    out: Annotated[Path | None, typer.Option("--out", help="Where to put the certificates (default: beside).")] = None,
    coordinator: Annotated[
        bool, typer.Option("--coordinator", help="Also sign the request of the coordinator itself.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Sign requests where the authority lives. Compare the words of every new key by phone first."""
    from wardround.deploy.trust.authority import issue
    from wardround.deploy.trust.certificates import certificate_summary, is_encrypted, pem
    from wardround.deploy.trust.fingerprints import fingerprint
    from wardround.deploy.trust.rotations import read_signing_request
    from wardround.runs.json_files import write_file

    asked = [read_signing_request(path) for path in requests]
    for one in asked:
        if one.hosts and not coordinator:
            raise Refusal(
                f"'{one.name}' asks to be the coordinator, at {', '.join(one.hosts)}",
                where=one.where,
                remedy="if it is, sign it with --coordinator",
            )
    locked = is_encrypted(folder / "authority.key")
    passphrase = read_passphrase(passphrase_file, new=False) if locked else None
    facts, lines = [], []
    for path, one in zip(requests, asked, strict=True):
        certificate = issue(folder, one, passphrase=passphrase)
        issued = certificate_summary(certificate)
        target = (out or path.parent) / f"{issued.name}.pem"
        write_file(target, pem(certificate))
        words = fingerprint(one.key)
        facts.append({"name": issued.name, "role": issued.role, "fingerprint": words, "certificate": target})
        lines += [
            f"Signed the {issued.role} {issued.name} until {issued.until:%Y-%m-%d}: {target}",
            f"  Words: {words}",
        ]
    lines.append("Take them to the coordinator: wardround coordinator accept CERTIFICATE")
    say({"signed": facts}, lines, as_json)


@authority_app.command()
def show(folder: Folder, as_json: AsJson = False) -> None:
    """List whom this authority has signed, with the words of their keys."""
    from wardround.deploy.trust.authority import authority_name, issued_keys, key_warnings

    name, issued = authority_name(folder), issued_keys(folder)
    warnings = key_warnings(folder, listens=False)
    lines = [f"The authority of {name}"]
    lines += [f"  {one} ({words['role']}): {words['fingerprint']}" for one, words in sorted(issued.items())]
    lines += [f"Warning: {one}." for one in warnings]
    say({"consortium": name, "issued": issued, "warnings": warnings}, lines, as_json)
