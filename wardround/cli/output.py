"""What a command prints: lines for a person, or one JSON object for a program; and who is at the keyboard."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wardround.core.errors import Refusal

if TYPE_CHECKING:
    from wardround.deploy.home import Home
    from wardround.deploy.roles import Role

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def say(words: dict[str, Any], lines: Sequence[str], as_json: bool) -> None:
    from wardround.report.html.markup import plain

    if as_json:
        typer.echo(json.dumps(words, default=str))
    else:
        for line in lines:
            indent = line[: len(line) - len(line.lstrip())]
            typer.echo(f"{indent}{plain(line)}" if line.strip() else "")


def person_name(by: str | None, home: "Home | None" = None, role: "Role" = "decide") -> str:
    """Who acts: the user of the operating system where the home says who may (roles.toml), else who they say."""
    import getpass

    if home is not None:
        from wardround.deploy.roles import acting_person

        found = acting_person(home.path, by, role)
        if found is not None:
            return found
    try:
        return by if by is not None else getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise Refusal("the name of the logged-in user is not known", remedy="give your name with --by NAME") from None
