"""`wardround ledger` and `wardround audit`: the records that cannot be changed unnoticed.

Imports are inside the commands, so that help loads nothing heavy.
"""

from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.output import AsJson

audit_app = typer.Typer(help="Read audit logs and ledgers, and check that nobody changed them.", no_args_is_help=True)
ledger_app = typer.Typer(help="The signed record of who chose, trained, withdrew and was paid.", no_args_is_help=True)

LedgerPath = Annotated[Path, typer.Option("--ledger", help="The ledger (a file of JSON lines); created if missing.")]
LedgerFile = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger (a file of JSON lines).")]
SigningKey = Annotated[Path, typer.Option("--key", help="The private key that signs, such as keys/va.key.")]
Signer = Annotated[
    str | None, typer.Option("--site", help="The site that owns the key (default: the name of the key file).")
]
AuditFile = Annotated[Path, typer.Argument(metavar="FILE", help="A ledger or an audit log (a file of JSON lines).")]
AuditKeys = Annotated[
    Path | None, typer.Option("--keys", help="A folder with NAME.pem, the public key or certificate of every party.")
]


@ledger_app.command()
def key(
    site: Annotated[str, typer.Argument(metavar="SITE", help="The site's name, as in the study.")],
    keys: Annotated[Path, typer.Option("--keys", help="The folder for SITE.key (private) and SITE.pem (public).")],
    as_json: AsJson = False,
) -> None:
    """Create the key with which a site signs its ledger entries."""
    from wardround.cli.incentives import key_command

    key_command(site, keys, as_json=as_json)


@ledger_app.command()
def record(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished `run` or `partners`.")],
    path: LedgerPath,
    key: SigningKey,
    site: Signer = None,
    paid: Annotated[
        Path | None, typer.Option("--rewards", help="The statement that `rewards --out` wrote for this run.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Record what a site did in a run, signed by the site: choice or consent, rounds, weights, payments."""
    from wardround.cli.incentives import record_command

    record_command(folder, path, key, site=site, rewards=paid, as_json=as_json)


@ledger_app.command()
def show(
    path: LedgerFile,
    keys: Annotated[
        Path | None, typer.Option("--keys", help="A folder with SITE.pem of every site, to check signatures.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a ledger entry by entry; exit code 2 if it was changed."""
    from wardround.cli.incentives import show_command

    show_command(path, keys, as_json=as_json)


@ledger_app.command()
def mend(path: LedgerFile, key: SigningKey, site: Signer = None, as_json: AsJson = False) -> None:
    """Repair what an interrupted `record` left behind, and nothing else."""
    from wardround.cli.incentives import mend_command

    mend_command(path, key, site=site, as_json=as_json)


@audit_app.command()
def verify(
    path: AuditFile,
    keys: AuditKeys = None,
    heads: Annotated[
        list[Path] | None, typer.Option("--head", help="A countersigned head of the log that the other side kept.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a ledger or audit log for edits, deletions and reordering; exit code 2 if there are any."""
    from wardround.cli.audit import verify_command

    verify_command(path, keys, witnesses=heads or (), as_json=as_json)


@audit_app.command(name="show")
def show_log(path: AuditFile, keys: AuditKeys = None, as_json: AsJson = False) -> None:
    """Show a ledger or audit log entry by entry; exit code 2 if it was changed."""
    from wardround.cli.audit import show_command

    show_command(path, keys, as_json=as_json)


@audit_app.command()
def replay(
    path: Annotated[Path, typer.Argument(metavar="TRANSCRIPT", help="A transcript's file, or the folder of a study.")],
    home: Annotated[Path | None, typer.Option("--home", help="A site's folder: compare with its own log.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the rounds of a study over real sites again, without data; exit code 2 if the model does not follow."""
    from wardround.cli.audit import replay_command

    replay_command(path, home, as_json=as_json)


@audit_app.command()
def export(
    path: AuditFile,
    out: Annotated[Path, typer.Option("--out", help="The file to write: .csv, .html or .pdf.")],
    keys: AuditKeys = None,
    study: Annotated[str | None, typer.Option("--study", help="Only what is about this study.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write an audit log as a table or a page; exit code 2 if it was changed."""
    from wardround.cli.operations.audit_export import export_command

    export_command(path, out, keys, study=study, as_json=as_json)
