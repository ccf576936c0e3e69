"""`wardround coordinator`: begins a consortium, signs and revokes sites, conducts studies, and tells how it stands.

Imports are inside the commands, so that help loads nothing heavy. Whatever a site says is shown as plain text.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.consortium.notices import send_test
from wardround.cli.consortium.status import status_lines
from wardround.cli.consortium.status import watch as repeat
from wardround.cli.consortium.studies import amend_study, cancel_study, resume_study, study_for_sites
from wardround.cli.operations.commands import add_operations
from wardround.cli.output import Watch, person_name, require_role, say
from wardround.cli.services import LogAs, LogFile, Metrics, leave, service_options
from wardround.cli.study_progress import conduct_study, listen
from wardround.cli.trust.admission import admission_facts, admission_lines
from wardround.cli.trust.authority import PassphraseFile, WithoutPassphrase, read_passphrase
from wardround.cli.trust.renewal import Authority, Party, renew_certificate

if TYPE_CHECKING:
    from wardround.deploy.home import CoordinatorHome

coordinator_app = typer.Typer(help="Run a consortium's coordinator: admit sites, run studies.", no_args_is_help=True)

HomeFolder = Annotated[
    Path | None,
    typer.Option("--home", help="The coordinator's folder (default: $WARDROUND_HOME or ./wardround-coordinator)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, progress on standard error.")]
By = Annotated[str | None, typer.Option("--by", help="Your name (default: the logged-in user).")]
StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="The study's name or identifier.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the study ends.")]


def open_home(home: Path | None) -> "CoordinatorHome":
    """The home, if there is a coordinator in it."""
    from wardround.deploy.home import CoordinatorHome, home_path

    found = CoordinatorHome(home_path(home, "wardround-coordinator"))
    _ = found.settings  # refuses here, with the folder's name, where there is none
    return found


@coordinator_app.command()
def init(
    consortium: Annotated[
        str, typer.Argument(metavar="CONSORTIUM", help="The consortium's name; with --second, who runs that server.")
    ],
    name: Annotated[str, typer.Option("--name", help="The coordinator's name; sites check it.")] = "coordinator",
    listen: Annotated[
        str, typer.Option("--listen", help="Where to listen, HOST:PORT; by default reachable from this machine only.")
    ] = "127.0.0.1:8002",
    hosts: Annotated[
        list[str] | None, typer.Option("--host", help="A name or address that sites connect to; may be repeated.")
    ] = None,
    authority: Annotated[
        Path | None,
        typer.Option("--authority", help="A folder elsewhere for the authority, such as one on a stick."),
    ] = None,
    passphrase_file: PassphraseFile = None,
    without_passphrase: WithoutPassphrase = False,
    organisation: Annotated[
        str, typer.Option("--organisation", help="Who runs the coordinator, if not the consortium itself.")
    ] = "",
    second: Annotated[
        bool, typer.Option("--second", help="Create a second server instead (as `wardround second init` does).")
    ] = False,
    first: Annotated[
        str, typer.Option("--coordinator", help="With --second: where the coordinator listens, HOST:PORT.")
    ] = "",
    server_name: Annotated[
        str, typer.Option("--server-name", help="With --second: the name in the coordinator's certificate.")
    ] = "coordinator",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Create the coordinator's key and certificate, and the authority here, or with --authority elsewhere."""
    from wardround.deploy.coordinator.consortium import begin_consortium, coordinator_settings
    from wardround.deploy.home import home_path
    from wardround.deploy.trust.authority import key_warnings
    from wardround.deploy.trust.fingerprints import fingerprint

    if second:
        from wardround.cli.party.second import begin

        begin("second" if name == "coordinator" else name, first, server_name, consortium, home, as_json=as_json)
        return
    words = coordinator_settings(consortium, name, listen, list(hosts or ()))
    apart = None if authority is None else authority.expanduser().absolute()
    new = apart is not None and not (apart / "authority.pem").exists()
    asked = apart is not None and (new or (apart / "authority.key").exists())
    passphrase = read_passphrase(passphrase_file, new=new, without=without_passphrase or not asked)
    words = words.model_copy(update={"organisation": organisation})
    made = begin_consortium(home_path(home, "wardround-coordinator"), words, apart, passphrase)
    folder, own = apart or made.path, fingerprint(made.key.public_key())
    warnings = key_warnings(folder, listens=apart is None)
    waiting = made.request_path(name) if not made.certificate_path.exists() else None
    reached = f"{words.hosts[0]}:{words.listen.rpartition(':')[2]}"
    lines = [
        f"Created the coordinator of {consortium}: {made.path}",
        f"1. Each site runs: wardround site init NAME --coordinator {reached} --server-name {name}",
        "2. It sends you request.csr. Sign it: wardround coordinator sign REQUEST",
        f"3. Send the signed certificate and {made.authority_path} back (neither is secret).",
        "4. Run: wardround coordinator start, then wardround coordinator run STUDY",
        f"Words of the coordinator's key, for the sites: {own}",
    ]
    if waiting is not None:
        how = f"wardround authority sign {waiting.name} --coordinator --folder FOLDER"
        lines.insert(
            1, f"0. Take {waiting} to the authority: {how}; then here: wardround coordinator accept {name}.pem"
        )
    else:
        lines.append(f"Keep {folder / 'authority.key'} safe: whoever has it can admit any site.")
    lines += [f"Warning: {one}." for one in warnings]
    facts = {
        "consortium": consortium,
        "coordinator": name,
        "home": made.path,
        "authority": made.authority_path,
        "listen": words.listen,
        "hosts": words.hosts,
        "fingerprint": own,
        "waiting": waiting,
        "warnings": warnings,
    }
    say(facts, lines, as_json)


@coordinator_app.command()
def sign(
    requests: Annotated[
        list[Path], typer.Argument(metavar="REQUEST...", help="A site's request (request.csr, or rotation.json).")
    ],
    testing: Annotated[
        bool,
        typer.Option(
            "--same-organisation-for-testing", help="Sign a second server of your own; it would hide nothing."
        ),
    ] = False,
    authority: Annotated[
        Path | None, typer.Option("--authority", help="The authority's folder, if it is elsewhere.")
    ] = None,
    passphrase_file: PassphraseFile = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Admit sites (or a second server) by signing requests. Compare the words of each key by phone before that."""
    from wardround.deploy.coordinator.consortium import admit, check_requests
    from wardround.deploy.trust.certificates import is_encrypted

    there = open_home(home)
    require_role(there, "administer")
    key = (authority or there.path) / "authority.key"
    passphrase = read_passphrase(passphrase_file, new=False) if is_encrypted(key) else None
    check_requests(there, requests)  # all of them, before the first is signed
    made = [admit(there, request, authority, passphrase, testing=testing) for request in requests]
    facts = [admission_facts(there, one) for one in made]
    lines = [line for one in made for line in admission_lines(there, one)]
    say(facts[0] if len(facts) == 1 else {"signed": facts}, lines, as_json)


@coordinator_app.command()
def requests(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """List the requests that wait for the authority, which is elsewhere."""
    from wardround.deploy.coordinator.consortium import waiting_requests
    from wardround.deploy.trust.fingerprints import fingerprint

    waiting = waiting_requests(open_home(home))
    facts = [{"name": one.name, "request": one.where, "fingerprint": fingerprint(one.key)} for one in waiting]
    lines = [f"{one['name']}: {one['request']} ({one['fingerprint']})" for one in facts] or ["No request is waiting."]
    say({"requests": facts}, lines, as_json)


@coordinator_app.command()
def accept(
    certificates: Annotated[list[Path], typer.Argument(metavar="CERTIFICATE...", help="What the authority signed.")],
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Take in certificates that the authority signed elsewhere; a site's renewal is then sent to it."""
    from wardround.deploy.coordinator.consortium import accept as take_in

    there = open_home(home)
    require_role(there, "administer")
    made = [take_in(there, path) for path in certificates]
    lines = [f"{one.name} until {one.until:%Y-%m-%d}: {one.path}" for one in made]
    say({"accepted": [admission_facts(there, one) for one in made]}, lines, as_json)


@coordinator_app.command()
def revoke(
    site: Annotated[str, typer.Argument(metavar="SITE", help="The site's name.")],
    why: Annotated[str, typer.Option("--why", help="The reason, for the record.")] = "",
    by: By = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Exclude a site for good; takes effect at once, also in running studies."""
    from wardround.deploy.coordinator.consortium import is_running
    from wardround.deploy.coordinator.consortium import revoke as shut_out

    there = open_home(home)
    shut_out(there, site, by=person_name(by, there, "administer"), why=why)
    now = (
        "The running coordinator no longer sends it requests."
        if is_running(there)
        else "The coordinator will not accept it."
    )
    say(
        {"revoked": site},
        [f"{site} is revoked. {now} What it sent before still counts; see `wardround retrain`."],
        as_json,
    )


@coordinator_app.command()
def start(home: HomeFolder = None, metrics: Metrics = "", form: LogAs = "text", file: LogFile = None) -> None:
    """Listen for sites and run the queued studies until Ctrl-C; continues where it was interrupted."""
    there = open_home(home)
    leave(listen(there, until_done=False, options=service_options(metrics, form, file)))


@coordinator_app.command()
def renew(
    site: Party = None,
    authority: Authority = None,
    passphrase_file: PassphraseFile = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Renew a certificate that has ended or soon will: a site's, to be sent to it, or the coordinator's own."""
    there = open_home(home)
    require_role(there, "administer")
    renew_certificate(there, site, authority, passphrase_file, as_json=as_json)


@coordinator_app.command()
def run(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="The study file (TOML).")],
    by: By = None,
    wait: Wait = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Queue a study for the sites; if no coordinator is running, run one until the study ends."""
    from wardround.deploy.coordinator.queue import enqueue

    there = open_home(home)
    who = person_name(by, there, "submit")
    name = enqueue(there, study_for_sites(there, study), who)
    conduct_study(there, name, wait=wait, as_json=as_json)


@coordinator_app.command()
def resume(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="The study, if several are unfinished.")
    ] = None,
    wait: Wait = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Continue a study that failed, was cancelled or interrupted, in the round it had reached."""
    there = open_home(home)
    require_role(there, "submit")
    conduct_study(there, resume_study(there, study), wait=wait, as_json=as_json)


@coordinator_app.command()
def cancel(
    study: StudyName,
    why: Annotated[str, typer.Option("--why", help="The reason; the sites are told.")] = "",
    by: By = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """End a study that waits or runs; its sites are told. `resume` takes it up again."""
    there = open_home(home)
    cancel_study(there, study, person_name(by, there, "submit"), why, as_json=as_json)


@coordinator_app.command()
def amend(
    study: StudyName,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The changed study file; none: the study as it is.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="Leave this site out; may be repeated.")
    ] = None,
    why: Annotated[str, typer.Option("--why", help="The reason; the sites are told.")] = "",
    by: By = None,
    wait: Wait = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Put a changed study in the place of one that has not finished; asks anew only whom the change concerns."""
    there = open_home(home)
    name = amend_study(there, study, file, without or [], person_name(by, there, "submit"), why)
    conduct_study(there, name, wait=wait, as_json=as_json)


@coordinator_app.command()
def status(
    watch: Watch = False,
    every: Annotated[bool, typer.Option("--all", help="Show all studies, however old.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show who is connected or late and why, what goes on in every study, and who must act next."""
    from wardround.deploy.coordinator.status import coordinator_status

    there = open_home(home)

    def show() -> None:
        facts = coordinator_status(there)
        say(facts, status_lines(facts, every=every), as_json)

    repeat(show) if watch else show()


@coordinator_app.command()
def notify(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Send a test notice by e-mail, webhook or command, as notices.toml in the coordinator's folder says."""
    there = open_home(home)
    send_test(there.path, f"the coordinator {there.own_name}", as_json=as_json)


@coordinator_app.command()
def transcript(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="The study's name or identifier.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Write a finished study's transcript, sums and model into one file, for sites to replay."""
    from wardround.cli.audit import write_transcript

    write_transcript(open_home(home), study, out, as_json=as_json)


add_operations(coordinator_app, "coordinator")
