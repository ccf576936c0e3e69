"""`wardround site data` and `wardround site policy`: what studies may read and do at a site.

Imports are inside the commands, so that help loads nothing heavy.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wardround.cli.output import AsJson, say
from wardround.core.errors import Refusal

if TYPE_CHECKING:
    from wardround.deploy.home import SiteHome

data_app = typer.Typer(help="Data that studies may read; the rows stay where they are.", no_args_is_help=True)
policy_app = typer.Typer(help="Show what studies may do here, or change it.")

HomeFolder = Annotated[
    Path | None, typer.Option("--home", help="The site's folder; by default $WARDROUND_HOME, or ./wardround-site.")
]
DataName = Annotated[str, typer.Argument(metavar="NAME", help="The name under which the data are known here.")]


def open_home(home: Path | None) -> "SiteHome":
    """The home, if there is a site in it."""
    from wardround.deploy.home import SiteHome, home_path

    found = SiteHome(home_path(home))
    _ = found.settings  # refuses here, with the folder's name, where there is none
    return found


@data_app.command()
def add(
    name: DataName,
    source: Annotated[str, typer.Option("--source", help="csv, parquet, sql (see wardround list source).")],
    path: Annotated[str | None, typer.Option("--path", help="The file, for csv and parquet.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="The database's address, for sql.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="The question to the database, for sql.")] = None,
    target: Annotated[str, typer.Option("--target", help="An outcome that should be among the columns.")] = "",
    setting: Annotated[
        list[str] | None, typer.Option("--setting", help='Another setting of the source, such as separator=";".')
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="A column that the policy shall allow; all: all that identify nobody."),
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing when all is well.")] = False,
) -> None:
    """Register data: they are read once to see that they can be, and never copied."""
    from wardround.deploy.site import datasets
    from wardround.deploy.site.policy import is_column_allowed
    from wardround.deploy.site.policy_file import read_policy, set_policy

    there = open_home(home)
    given = {"path": path, "url": url, "query": query}
    settings = {key: value for key, value in given.items() if value is not None}
    seen = datasets.add(there, name, source, {**settings, **parse_settings(setting or [])}, target=target)
    harmless = [column for column in seen.kinds if column not in seen.identifying]
    wanted = harmless if allow == ["all"] else allow or []
    unknown = [column for column in wanted if column not in seen.kinds]
    if unknown:
        datasets.remove(there, name)
        raise Refusal(f"--allow names '{unknown[0]}', which is no column", remedy=f"there are {', '.join(seen.kinds)}")
    if wanted:
        merged = dict.fromkeys([*read_policy(there.policy_path).columns, *wanted])
        set_policy(there.policy_path, "columns", ",".join(merged))
    policy = read_policy(there.policy_path)
    closed = [column for column in harmless if not is_column_allowed(column, policy)]
    lines = [f"{name}: {seen.rows:,} rows, {len(seen.kinds)} columns. Nothing was copied."]
    lines += [f"  {column}: {kind}" for column, kind in seen.kinds.items()]
    lines += [f"LOOK: {column} seems to identify patients ({why})." for column, why in seen.identifying.items()]
    if closed:
        more = ",".join([*policy.columns, *closed])
        lines.append(
            f"The policy withholds {', '.join(closed)}. To allow them: wardround site policy set columns {more!r}"
        )
    if seen.rows < policy.smallest_cell:
        lines.append(
            f"LOOK: fewer rows than the smallest cell of {policy.smallest_cell}: nothing will be told about them."
        )
    facts = {
        "data": name,
        "rows": seen.rows,
        "columns": seen.kinds,
        "identifying": seen.identifying,
        "withheld": closed,
    }
    if not quiet:
        say(facts, lines, as_json)


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE as a setting; what TOML understands is taken as such, anything else as text."""
    import tomllib

    found: dict[str, Any] = {}
    for one in settings:
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise Refusal(f"'{one}' is no setting", where="--setting", remedy="write KEY=VALUE")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = value
    return found


@data_app.command(name="list")
def list_data(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """What is registered, and where it lies (passwords are not shown)."""
    from wardround.deploy.site.datasets import read_datasets

    known = {name: entry.description for name, entry in read_datasets(open_home(home)).items()}
    say({"data": known}, [f"{name}: {shown}" for name, shown in known.items()] or ["No data yet."], as_json)


@data_app.command()
def remove(name: DataName, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Take data off the list; the rows are not touched."""
    from wardround.deploy.site.datasets import remove as taken_off

    taken_off(open_home(home), name)
    say({"removed": name}, [f"{name} is no longer registered; the rows lie where they lay."], as_json)


@policy_app.callback(invoke_without_command=True)
def show_policy(context: typer.Context, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """What studies may do here; shown when nothing else is asked."""
    if context.invoked_subcommand is not None:
        return
    from wardround.deploy.site.policy_file import read_policy

    there = open_home(home)
    policy = read_policy(there.policy_path)
    if as_json:
        typer.echo(policy.model_dump_json())
    else:
        typer.echo(there.policy_path.read_text(encoding="utf-8"), nl=False)


@policy_app.command(name="set")
def change_policy(
    key: Annotated[str, typer.Argument(metavar="KEY", help="purposes, components, columns, smallest_cell, ...")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The new value; lists with commas.")],
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Change one key of the policy; it counts at once, also for studies that are running."""
    from wardround.deploy.site.policy_file import set_policy
    from wardround.deploy.trust.audit_log import event_entry

    there = open_home(home)
    new = set_policy(there.policy_path, key, value).model_dump(mode="json")[key]
    there.log().append(event_entry("policy", key=key, value=json.dumps(new)))
    say({key: new}, [f"{key} = {json.dumps(new)}"], as_json)
