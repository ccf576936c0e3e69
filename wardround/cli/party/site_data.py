"""`wardround site data` and `wardround site policy`: what studies may read and do at a site.

Imports are inside the commands, so that help loads nothing heavy.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wardround.cli.output import AsJson, require_role, say
from wardround.core.errors import Refusal

if TYPE_CHECKING:
    from wardround.deploy.home import SiteHome

data_app = typer.Typer(help="Register the data that studies may read; rows stay where they are.", no_args_is_help=True)
policy_app = typer.Typer(help="Show what studies may do here, or change it.")

HomeFolder = Annotated[
    Path | None, typer.Option("--home", help="The site's folder (default: $WARDROUND_HOME or ./wardround-site).")
]
DataName = Annotated[str, typer.Argument(metavar="NAME", help="The dataset's name at this site.")]


def open_home(home: Path | None) -> "SiteHome":
    """The home, if there is a site in it."""
    from wardround.deploy.home import SiteHome, home_path

    found = SiteHome(home_path(home))
    _ = found.settings  # refuses here, with the folder's name, where there is none
    return found


@data_app.command()
def add(
    name: DataName,
    source: Annotated[str, typer.Option("--source", help="csv, parquet, sql, images (see wardround list source).")],
    path: Annotated[
        str | None, typer.Option("--path", help="The file, for csv and parquet; the folder, for images.")
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="The database's address, for sql.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="The SQL query, for sql.")] = None,
    target: Annotated[str, typer.Option("--target", help="The outcome column, to check that it is there.")] = "",
    setting: Annotated[
        list[str] | None, typer.Option("--setting", help='Another setting of the source, such as separator=";".')
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            help="A column that the policy allows, or all for those that do not identify patients; may be repeated.",
        ),
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing on success.")] = False,
) -> None:
    """Register a dataset; it is read once as a check, and never copied."""
    from wardround.deploy.site import datasets
    from wardround.deploy.site.policy import is_column_allowed
    from wardround.deploy.site.policy_file import read_policy, set_policy

    there = open_home(home)
    require_role(there, "administer")
    given = {"path": path, "url": url, "query": query}
    settings = {key: value for key, value in given.items() if value is not None}
    seen = datasets.add(there, name, source, {**settings, **parse_settings(setting or [])}, target=target)
    harmless = [column for column in seen.kinds if column not in seen.identifying]
    wanted = harmless if allow == ["all"] else allow or []
    unknown = [column for column in wanted if column not in seen.kinds]
    if unknown:
        datasets.remove(there, name)
        raise Refusal(
            f"--allow names '{unknown[0]}', which is not a column", remedy=f"choose from {', '.join(seen.kinds)}"
        )
    if wanted:
        merged = dict.fromkeys([*read_policy(there.policy_path).columns, *wanted])
        set_policy(there.policy_path, "columns", ",".join(merged))
    policy = read_policy(there.policy_path)
    closed = [column for column in harmless if not is_column_allowed(column, policy)]
    lines = [f"{name}: {seen.rows:,} rows, {len(seen.kinds)} columns. Nothing was copied."]
    lines += [f"  {column}: {kind}" for column, kind in seen.kinds.items()]
    lines += [f"Warning: {column} may identify patients ({why})." for column, why in seen.identifying.items()]
    lines += [f"Warning: {note}" for note in seen.notes]
    for one in seen.findings:
        shown = f" ({', '.join(one.examples)})" if one.examples else ""
        lines.append(f"Warning: {one.what}{shown}. In the study: {one.remedy}.")
    if closed:
        more = ",".join([*policy.columns, *closed])
        lines.append(
            f"The policy withholds these columns: {', '.join(closed)}."
            f" To allow them: wardround site policy set columns {more!r}"
        )
    if seen.rows < policy.smallest_cell:
        lines.append(
            f"Warning: fewer rows than the smallest cell of {policy.smallest_cell}: nothing is reported about them."
        )
    facts = {
        "data": name,
        "rows": seen.rows,
        "columns": seen.kinds,
        "identifying": seen.identifying,
        "warnings": [asdict(one) for one in seen.findings],
        "withheld": closed,
        **({"notes": list(seen.notes)} if seen.notes else {}),
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
            raise Refusal(f"'{one}' is not a setting", where="--setting", remedy="write KEY=VALUE")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = value
    return found


@data_app.command(name="list")
def list_data(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """List registered datasets and where they are (passwords are hidden)."""
    from wardround.deploy.site.datasets import read_datasets

    known = {name: entry.description for name, entry in read_datasets(open_home(home)).items()}
    say({"data": known}, [f"{name}: {shown}" for name, shown in known.items()] or ["No datasets yet."], as_json)


@data_app.command()
def remove(name: DataName, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Remove a dataset from the list; the rows are not touched."""
    from wardround.deploy.site.datasets import remove as taken_off

    there = open_home(home)
    require_role(there, "administer")
    taken_off(there, name)
    say({"removed": name}, [f"{name} is no longer registered; the rows were not touched."], as_json)


@policy_app.callback(invoke_without_command=True)
def show_policy(context: typer.Context, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Show what studies may do here, or change it."""
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
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The new value; separate list items with commas.")],
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Change one key of the policy; takes effect at once, also for running studies."""
    from wardround.deploy.site.policy_file import set_policy
    from wardround.deploy.trust.audit_log import event_entry

    there = open_home(home)
    require_role(there, "administer")
    new = set_policy(there.policy_path, key, value).model_dump(mode="json")[key]
    there.log().append(event_entry("policy", key=key, value=json.dumps(new)))
    say({key: new}, [f"{key} = {json.dumps(new)}"], as_json)
