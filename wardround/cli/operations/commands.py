"""`install-service`, `backup` and `restore` of every party: the same for a site, a second server and a coordinator."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.output import AsJson, say
from wardround.core.errors import Refusal

DEFAULTS = {"site": "wardround-site", "second": "wardround-second", "coordinator": "wardround-coordinator"}
HomeFolder = Annotated[Path | None, typer.Option("--home", help="The party's folder (default: as for `start`).")]
Print = Annotated[bool, typer.Option("--print", help="Print the unit and write nothing.")]
SystemUser = Annotated[
    str, typer.Option("--system", metavar="USER", help="A service of the whole machine that runs as this user.")
]
StartOption = Annotated[
    list[str] | None,
    typer.Option("--option", help="A further word for `start`, such as --option=--metrics=127.0.0.1:9464."),
]


def add_operations(app: typer.Typer, role: str) -> None:
    """Give a party's commands these too."""

    @app.command("install-service")
    def install_service(
        home: HomeFolder = None,
        show: Print = False,
        system: SystemUser = "",
        option: StartOption = None,
        as_json: AsJson = False,
    ) -> None:
        """Write a systemd unit that starts this party with the machine and again after a crash."""
        install(role, home, show=show, system=system, options=tuple(option or ()), as_json=as_json)

    @app.command("backup")
    def backup(
        out: Annotated[Path, typer.Argument(metavar="FILE", help="The copy to write, such as home.tar.gz.")],
        home: HomeFolder = None,
        as_json: AsJson = False,
    ) -> None:
        """Copy this party's home, its private key included, into one file; the process may go on meanwhile."""
        from wardround.deploy.operations.archive import write_backup

        there = existing_home(role, home)
        facts = write_backup(there, out)
        lines = [
            f"{facts['files']} files of {there} are in {out} ({facts['bytes']:,} bytes).",
            "It holds the private key: keep it as you keep the home itself. Data are where they were, not in it.",
        ]
        say({**facts, "backup": str(out)}, lines, as_json)

    @app.command("restore")
    def restore(
        copy: Annotated[Path, typer.Argument(metavar="FILE", help="What `backup` wrote.")],
        home: HomeFolder = None,
        as_json: AsJson = False,
    ) -> None:
        """Make a home from a copy, in a folder that is new or empty."""
        from wardround.deploy.home import home_path
        from wardround.deploy.operations.archive import read_backup

        there = home_path(home, DEFAULTS[role])
        facts = read_backup(copy, there, role)
        say({**facts, "home": str(there)}, [f"{there} is as it was at {facts['time']}.", *after_restore(role)], as_json)


def after_restore(role: str) -> list[str]:
    """What a person must know who goes on from an older copy."""
    if role != "site":
        return ["What it did since is forgotten: the other parties hold later ends of its log, and will say so."]
    return [
        "What it sent since is forgotten. When it connects, the coordinator shows how far its log was, and the site "
        "answers no study until you run `wardround site accept-restore`.",
        "Studies decided before are then not answered any more; lower `epsilon` in the policy by what was promised "
        "since the copy.",
    ]


def existing_home(role: str, home: Path | None) -> Path:
    from wardround.deploy.home import home_path, how_to_begin
    from wardround.deploy.operations.archive import SETTINGS

    there = home_path(home, DEFAULTS[role])
    if not (there / SETTINGS[role]).is_file():
        raise Refusal(f"there is no {SETTINGS[role]}", where=str(there), remedy=how_to_begin(role))  # type: ignore[arg-type]
    return there


def install(role: str, home: Path | None, *, show: bool, system: str, options: tuple[str, ...], as_json: bool) -> None:
    """`install-service`: writes the unit, and says what is left to be done."""
    from wardround.deploy.operations.units import next_steps, unit_of
    from wardround.deploy.settings_files import load_toml

    there = existing_home(role, home)
    party = str(load_toml(there / f"{role}.toml", "").get("name", ""))
    program = Path(sys.executable).with_name("wardround")
    if not program.exists():
        found = shutil.which("wardround")
        if found is None:
            raise Refusal("the program `wardround` is not installed here", remedy="install it with pip, then try again")
        program = Path(found)
    unit = unit_of(role, party, there, program, system_user=system or None, options=options)
    if show:
        typer.echo(unit.text, nl=False)
        return
    if not sys.platform.startswith("linux"):
        raise Refusal(
            "services are installed on Linux, by systemd, only",
            remedy=f"let the service manager of this system run `wardround {role} start --home {there}`",
        )
    try:
        unit.path.parent.mkdir(parents=True, exist_ok=True)
        unit.path.write_text(unit.text, encoding="utf-8")
    except OSError as error:
        raise Refusal(
            f"the unit cannot be written: {error.strerror}", where=str(unit.path), remedy="use --print, or become root"
        ) from None
    steps = next_steps(unit, system=bool(system))
    say(
        {"unit": str(unit.path), "next": steps},
        [f"Wrote {unit.path}. Now run:", *(f"  {one}" for one in steps)],
        as_json,
    )
