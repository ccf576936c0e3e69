"""What a command prints: lines for a person, or one JSON object for a program; and who is at the keyboard."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wardround.core.errors import Refusal

if TYPE_CHECKING:
    from wardround.deploy.home import Home
    from wardround.deploy.roles import Role

Watch = Annotated[bool, typer.Option("--watch", help="Show it anew every two seconds, until Ctrl-C.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def say(words: dict[str, Any], lines: Sequence[str], as_json: bool) -> None:
    from wardround.report.html.markup import plain

    if as_json:
        typer.echo(json.dumps(words, default=str))
    else:
        for line in lines:
            indent = line[: len(line) - len(line.lstrip())]
            typer.echo(f"{indent}{plain(line)}" if line.strip() else "")


def ago(seconds: float) -> str:
    """A duration as people say it.

    >>> ago(12), ago(150), ago(7300), ago(200000)
    ('12 s', '2 min', '2 h', '2 days')
    """
    for size, word in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size * (2 if word == "days" else 1):
            return f"{seconds // size:.0f} {word}"
    return f"{max(0, seconds):.0f} s"


def since_words(moment: float, now: float) -> str:
    """A time of day or a day, and how long ago that was."""
    import time

    there = time.localtime(moment)
    today = time.strftime("%Y-%m-%d", there) == time.strftime("%Y-%m-%d", time.localtime(now))
    return f"{time.strftime('%H:%M' if today else '%Y-%m-%d %H:%M', there)} ({ago(now - moment)})"


def require_role(home: "Home", role: "Role") -> None:
    """Refuse whom the home does not name for this; where it binds no roles, anybody may."""
    from wardround.deploy.roles import acting_person

    acting_person(home.path, None, role)


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
