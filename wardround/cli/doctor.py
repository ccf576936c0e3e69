"""`wardround doctor`: a line for everything that usually goes wrong between hospitals; exit code 2 if something is."""

import json
import os
from pathlib import Path

import typer

from wardround.deploy.doctor import examine_home
from wardround.deploy.home import HOME, home_path
from wardround.report.html.markup import plain

HOMES = ("wardround-site", "wardround-coordinator")
"""Where a home is looked for when none is named."""
WORDS = {"ok": "ok", "look": "Warning", "wrong": "Error"}


def doctor_command(home: Path | None, *, as_json: bool) -> None:
    found = examine_home(choose_home(home))
    sick = [one for one in found if one.state == "wrong"]
    if as_json:
        typer.echo(json.dumps({"ok": not sick, "findings": [one._asdict() for one in found]}))
    else:
        for one in found:
            typer.echo(f"{WORDS[one.state]:7} {plain(f'{one.name}: {one.sentence}')}")
        typer.echo(f"{len(sick)} of {len(found)} checks failed." if sick else "No errors found.")
    if sick:
        raise typer.Exit(2)


def choose_home(home: Path | None) -> Path:
    if home is None and not os.environ.get(HOME):
        return home_path(next((Path(name) for name in HOMES if Path(name).is_dir()), None))
    return home_path(home)
