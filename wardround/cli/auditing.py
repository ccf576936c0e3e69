"""`wardround audit verify`: whether a ledger is as its signers wrote it."""

import json
from pathlib import Path

import typer

from wardround.core.errors import Refusal
from wardround.partners.ledger import Ledger


def verify_command(path: Path, keys: Path, *, as_json: bool) -> None:
    if not path.is_file():
        raise Refusal("there is no such ledger", where=str(path), remedy="check the path")
    public = {key.stem: key.read_text(encoding="utf-8") for key in sorted(keys.glob("*.pem"))}
    if not public:
        raise Refusal("there are no public keys", where=str(keys), remedy="put SITE.pem of every site into this folder")
    findings = Ledger(path).verify(public)
    if as_json:
        typer.echo(json.dumps({"ledger": str(path), "findings": [finding._asdict() for finding in findings]}))
    elif not findings:
        typer.echo(f"{path}: every entry is as its site signed it, and none is missing.")
    else:
        for finding in findings:
            typer.echo(f"{path}: {finding}")
    if findings:
        raise typer.Exit(2)
