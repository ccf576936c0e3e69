"""What a command prints: lines for a person, or one JSON object for a program; and who is at the keyboard."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from wardround.core.errors import Refusal

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def say(words: dict[str, Any], lines: Sequence[str], as_json: bool) -> None:
    from wardround.report.html.markup import plain

    if as_json:
        typer.echo(json.dumps(words, default=str))
    else:
        for line in lines:
            indent = line[: len(line) - len(line.lstrip())]
            typer.echo(f"{indent}{plain(line)}" if line.strip() else "")


def person_name(by: str | None) -> str:
    import getpass

    try:
        return by if by is not None else getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise Refusal("the name of the logged-in user is not known", remedy="give your name with --by NAME") from None
