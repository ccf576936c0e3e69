"""`wardround second`: the second server of a consortium, run by another organisation than the coordinator.

Imports are inside the commands, so that help loads nothing heavy.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.operations.commands import add_operations
from wardround.cli.output import AsJson, say
from wardround.cli.party.decisions import (
    Authority,
    AuthorityWords,
    By,
    Certificate,
    KeyFile,
    OneStudy,
    OnlyStudy,
    Until,
    Why,
    Yes,
    add_person_key,
    confirm_approval,
    deny_study,
    join_consortium,
    parse_day,
    who_decides,
    withdraw_approval,
)
from wardround.cli.party.overview import STATES
from wardround.cli.services import LogAs, LogFile, Metrics, service_options, start_second

if TYPE_CHECKING:
    from wardround.deploy.second.home import SecondHome

second_app = typer.Typer(
    help="Run a consortium's second server, which hides single answers from the coordinator.", no_args_is_help=True
)

HomeFolder = Annotated[
    Path | None,
    typer.Option("--home", help="The second server's folder (default: $WARDROUND_HOME or ./wardround-second)."),
]
StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="The study, as listed by `wardround second studies`.")]


def open_second(home: Path | None) -> "SecondHome":
    """The home, if there is a second server in it."""
    from wardround.deploy.home import home_path
    from wardround.deploy.second.home import SecondHome

    found = SecondHome(home_path(home, "wardround-second"))
    _ = found.settings  # refuses here, with the folder's name, where there is none
    return found


@second_app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The second server's name, such as ministry.")],
    coordinator: Annotated[str, typer.Option("--coordinator", help="Where the coordinator listens, HOST:PORT.")],
    server_name: Annotated[str, typer.Option("--server-name", help="The name in the coordinator's certificate.")],
    organisation: Annotated[str, typer.Option("--organisation", help="Who runs this server.")],
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Create the second server's folder, its private key and a certificate request for the coordinator."""
    begin(name, coordinator, server_name, organisation, home, as_json=as_json)


def begin(
    name: str, coordinator: str, server_name: str, organisation: str, home: Path | None, *, as_json: bool
) -> None:
    """`second init`, and `coordinator init --second`."""
    from wardround.deploy.home import home_path
    from wardround.deploy.second.home import begin_second
    from wardround.deploy.trust.fingerprints import fingerprint

    made = begin_second(home_path(home, "wardround-second"), name, coordinator, server_name, organisation)
    print_of = fingerprint(made.key.public_key())
    lines = [
        f"Created the second server {name} of {organisation}: {made.path}",
        f"1. Send {made.request_path} to the coordinator. It is not secret; key.pem stays here.",
        f"   Compare the words of its key by phone, with the coordinator and with the sites: {print_of}",
        "2. With the files you get back: wardround second join CERTIFICATE AUTHORITY",
        "3. Run: wardround second start, then decide about studies: wardround second studies",
    ]
    facts = {"second": name, "organisation": organisation, "home": made.path, "request": made.request_path}
    say({**facts, "fingerprint": print_of}, lines, as_json)


@second_app.command()
def join(
    certificate: Certificate,
    authority: Authority = None,
    words: AuthorityWords = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Join the consortium with the signed certificate, or renew it, after checking its key, name and authority."""
    did = "is a second server of the consortium"
    join_consortium(open_second(home), certificate, authority, words, did, as_json=as_json)


@second_app.command()
def studies(
    study: OneStudy = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """List the studies that name this server and their state, or describe one in plain words."""
    from wardround.deploy.party.decisions import decision_status, offers, resolve
    from wardround.deploy.second.approvals import describe_for_second

    there = open_second(home)
    if study is not None:
        offer = resolve(there, study)
        say({"study": offer.id, "content": offer.study}, describe_for_second(there, offer), as_json)
        return
    rows = [(offer, *decision_status(there, offer.id)) for offer in offers(there)]
    facts = [{"study": offer.id, "state": state, "why": why} for offer, state, why in rows]
    lines = [f"{offer.id}: {STATES.get(state, state)}" for offer, state, _ in rows]
    say({"studies": facts}, lines or ["No study has been offered yet."], as_json)


@second_app.command()
def approve(
    study: StudyName,
    by: By = None,
    key: KeyFile = None,
    until: Until = None,
    yes: Yes = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Describe what this server would do for a study, and agree to it."""
    from wardround.deploy.party.decisions import resolve
    from wardround.deploy.second.approvals import approve_as_second, describe_for_second

    there = open_second(home)
    offer, (who, signer) = resolve(there, study), who_decides(by, key, there)
    last = parse_day(until)
    if not as_json:
        say({}, describe_for_second(there, offer), as_json=False)
    if not yes:
        confirm_approval(offer.id, who, as_json=as_json)
    decision = approve_as_second(there, offer.id, by=who, until=last, key=signer)
    say({"study": offer.id, "state": decision.state, "by": who}, [f"{who} approved {offer.id}."], as_json)


@second_app.command()
def deny(
    study: StudyName,
    by: By = None,
    key: KeyFile = None,
    why: Why = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Deny a study; the coordinator receives the reason."""
    deny_study(open_second(home), study, by, why, key, as_json=as_json)


@second_app.command()
def withdraw(
    study: StudyName,
    by: By = None,
    key: KeyFile = None,
    why: Why = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Withdraw an approval for good; the study then has no second server, and stops."""
    withdraw_approval(open_second(home), study, by, why, key, "nothing more is opened for it.", as_json=as_json)


@second_app.command()
def log(study: OnlyStudy = None, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Show everything this server received and sent, and every decision; exit code 2 if the log was changed."""
    from wardround.cli.audit import show_command

    show_command(open_second(home).audit_path, None, study=study, as_json=as_json)


@second_app.command()
def start(home: HomeFolder = None, metrics: Metrics = "", form: LogAs = "text", file: LogFile = None) -> None:
    """Connect to the coordinator and serve approved studies, until Ctrl-C."""
    start_second(open_second(home).path, service_options(metrics, form, file))


add_operations(second_app, "second")
add_person_key(second_app)
