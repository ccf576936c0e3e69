"""`wardround site`: a hospital's side. Its key, its data, its policy, its decisions, and all that ever left it.

Imports are inside the commands, so that help loads nothing heavy.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.consortium.notices import send_test
from wardround.cli.consortium.status import watch as repeat
from wardround.cli.models.commands import (
    Explain,
    KeptColumns,
    OutFile,
    PageFile,
    PatientTable,
    ReaderSettings,
    SqlQuery,
    uncollected,
)
from wardround.cli.operations.commands import add_operations
from wardround.cli.output import AsJson, Watch, say
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
    confirm_decision,
    deny_study,
    join_consortium,
    parse_day,
    who_decides,
    withdraw_approval,
)
from wardround.cli.party.overview import site_lines, study_line
from wardround.cli.party.site_data import HomeFolder, add, data_app, open_home, parse_settings, policy_app
from wardround.cli.services import LogAs, LogFile, Metrics, service_options, start_site
from wardround.cli.trust.partners import add_commands, ask_to_compare, compare
from wardround.core.errors import Refusal

if TYPE_CHECKING:
    from wardround.deploy.home import SiteHome
    from wardround.deploy.party.decisions import Offer
    from wardround.deploy.site.study_summary import StudySummary

site_app = typer.Typer(help="Run a hospital's site: data, policy, approvals, log.", no_args_is_help=True)
site_app.add_typer(data_app, name="data")
site_app.add_typer(policy_app, name="policy")
add_commands(site_app)
add_person_key(site_app)

StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="The study, as listed by `wardround site studies`.")]


@site_app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The site's name, such as freetown.")],
    coordinator: Annotated[str, typer.Option("--coordinator", help="Where the coordinator listens, HOST:PORT.")],
    server_name: Annotated[str, typer.Option("--server-name", help="The name in the coordinator's certificate.")],
    purposes: Annotated[
        list[str] | None, typer.Option("--purpose", help="A purpose that studies may have; may be repeated.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="A table (.csv, .parquet) to register now, as with site data add.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="A column of the table that the policy allows, or all; may be repeated."),
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Create this site's folder, its private key and a certificate request for the coordinator."""
    from wardround.deploy.home import home_path
    from wardround.deploy.site.enrolment import begin_site, site_settings
    from wardround.deploy.trust.fingerprints import fingerprint

    made = begin_site(home_path(home), site_settings(name, coordinator, server_name), purposes or [])
    print_of = fingerprint(made.key.public_key())
    lines = [
        f"Created the site {name}: {made.path}",
        f"1. Send {made.request_path} to the coordinator. It is not secret; key.pem stays here.",
        f"   Read the words of your key to the coordinator and to your partners by phone: {print_of}",
        "2. With the files you get back: wardround site join CERTIFICATE AUTHORITY",
        "3. Register data (wardround site data add) and review policy.toml, which allows no column yet.",
    ]
    facts = {"site": name, "home": made.path, "request": made.request_path, "policy": made.policy_path}
    facts["fingerprint"] = print_of
    if data is not None:
        source = "parquet" if data.suffix == ".parquet" else "csv"
        label = "".join(letter if letter.isalnum() else "-" for letter in data.stem)
        add(label, source, path=str(data.resolve()), allow=allow, home=made.path, as_json=False, quiet=True)
        lines[-1] = f"3. {data} is registered as {label}. Review policy.toml, then: wardround site start"
    say(facts, lines, as_json)


@site_app.command()
def join(
    certificate: Certificate,
    authority: Authority = None,
    words: AuthorityWords = None,
    starts: Annotated[bool, typer.Option("--start", help="Then connect, as `wardround site start` does.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Join the consortium with the signed certificate, or renew it, after checking its key, name and authority."""
    there = open_home(home)
    join_consortium(there, certificate, authority, words, "belongs to the consortium", as_json=as_json)
    if starts:
        start_site(there.path)


@site_app.command()
def studies(
    study: OneStudy = None,
    data: Annotated[str | None, typer.Option("--data", help="The dataset to use, if several are registered.")] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """List the studies offered to this site and their state, or describe one in plain words."""
    from wardround.deploy.party.decisions import offers, resolve
    from wardround.deploy.site.approvals import promised_epsilon as promised_in
    from wardround.deploy.site.own_model import figure_lines, own_figures
    from wardround.deploy.site.policy import epsilon_of
    from wardround.deploy.site.policy_file import read_policy
    from wardround.deploy.site.release.privacy_budget import charged_epsilon, spending_sentence, total_sentences
    from wardround.deploy.site.studies.overview import studies_at

    there = open_home(home)
    if study is not None:
        offer = resolve(there, study)
        shown, own = describe_offer(there, offer, data), own_figures(there.folder(offer.id))
        lines = (
            [*summary_lines(shown), "", "Quality of the model", *(f"  {one}" for one in figure_lines(own))]
            if own
            else summary_lines(shown)
        )
        say({**shown.facts, "figures": own}, lines, as_json)
        return
    policy, found = read_policy(there.policy_path), studies_at(there)
    words = {offer.id: offer.study for offer in offers(there)}
    spent = {study: charged_epsilon(there, policy, study) for study in words}
    facts = [
        {**one, "epsilon": epsilon_of(words[one["study"]]), "epsilon_charged": spent[one["study"]]} for one in found
    ]
    lines = [
        study_line(one) + (f"; {cost}" if (cost := spending_sentence(one["epsilon"], one["epsilon_charged"])) else "")
        for one in facts
    ]
    used, promised = charged_epsilon(there, policy), promised_in(there)
    totals = {"epsilon_allowed": policy.epsilon, "epsilon_promised": promised, "epsilon_charged": used}
    lines = [*lines, *total_sentences(policy, promised, used)] if lines else ["No study has been offered yet."]
    say({"studies": facts, **totals}, lines, as_json)


@site_app.command()
def status(watch: Watch = False, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Show whether this site is connected, its certificate, its studies, and what to do next."""
    from wardround.deploy.site.studies.overview import site_status

    there = open_home(home)

    def show() -> None:
        facts = site_status(there)
        say(facts, site_lines(facts), as_json)

    repeat(show) if watch else show()


def describe_offer(home: "SiteHome", offer: "Offer", data: str | None) -> "StudySummary":
    from wardround.deploy.site.studies.offer_notes import offer_notes
    from wardround.deploy.site.study_summary import StudySummary, describe

    shown, (parts, facts) = describe(home, offer, data), offer_notes(home, offer, data)
    return StudySummary({**shown.facts, **facts}, (*shown.parts[:1], *parts, *shown.parts[1:]), shown.against)


def summary_lines(shown: "StudySummary") -> list[str]:
    lines = [str(shown.facts["study"])]
    for heading, sentences in shown.parts:
        lines += ["", heading, *(f"  {sentence}" for sentence in sentences)]
    if shown.against:
        lines += ["", "Your policy does not allow it", *(f"  {reason}" for reason in shown.against)]
    return lines


@site_app.command()
def approve(
    study: StudyName,
    by: By = None,
    key: KeyFile = None,
    data: Annotated[str | None, typer.Option("--data", help="The dataset to use, if several are registered.")] = None,
    until: Until = None,
    yes: Yes = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Approve although the data do not fit; the study may fail for all.")
    ] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Describe what a study reads, sends and costs, whether your data fit, and approve it if you agree."""
    from wardround.deploy.party.decisions import resolve, study_of
    from wardround.deploy.site.approvals import approve as approve_at_site
    from wardround.deploy.site.partner_summary import comparison_warning

    there = open_home(home)
    offer, (who, signer) = resolve(there, study, undecided=True), who_decides(by, key, there)
    last = parse_day(until)
    shown = describe_offer(there, offer, data)
    if not as_json:
        say({}, summary_lines(shown), as_json=False)
    compared: list[str] = []
    if shown.facts["misfits"] and not shown.against and not anyway:
        raise Refusal(
            f"your data do not fit this study: {' '.join(shown.facts['misfits'])}",
            where=offer.id,
            remedy="correct the data, ask for a changed study, or add --anyway",
        )
    if not yes and not shown.against:
        confirm_approval(offer.id, who, as_json=as_json)
        compared = ask_to_compare(there, study_of(offer), who)
    decision = approve_at_site(there, offer.id, by=who, data=data, until=last, key=signer)
    compare(there, study_of(offer), compared, who)
    lines = [
        "",
        f"{who} approved {offer.id} until {decision.until}. To withdraw: wardround site withdraw {offer.id}",
        *comparison_warning(there, study_of(offer)),
    ]
    say({"study": offer.id, "state": decision.state, "by": who, "until": decision.until, **shown.facts}, lines, as_json)


@site_app.command()
def deny(
    study: StudyName,
    by: By = None,
    key: KeyFile = None,
    why: Why = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Deny a study; the coordinator receives the reason."""
    deny_study(open_home(home), study, by, why, key, as_json=as_json)


@site_app.command()
def withdraw(
    study: StudyName,
    by: By = None,
    key: KeyFile = None,
    why: Why = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Withdraw an approval for good; takes effect at once, also while the study runs."""
    consequence = "it gets no more answers. What was sent before stays sent."
    withdraw_approval(open_home(home), study, by, why, key, consequence, as_json=as_json)


@site_app.command()
def reread(
    study: StudyName,
    by: By = None,
    key: KeyFile = None,
    yes: Yes = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Let an approved study ask anew after its data were corrected here, before it trains."""
    from wardround.deploy.party.decisions import resolve
    from wardround.deploy.site.studies.correction import read_anew

    there = open_home(home)
    offer, (who, signer) = resolve(there, study), who_decides(by, key, there)
    if not yes:
        words = "What was told before stays told, so the difference shows what you corrected. Read the data again?"
        confirm_decision(offer.id, words, as_json=as_json)
    decision = read_anew(there, offer.id, by=who, key=signer)
    lines = [
        f"{who} lets {offer.id} read the data of {decision.data} again. The new statistics count beside the old ones.",
        "Tell the coordinator to run: wardround coordinator resume",
    ]
    say({"study": offer.id, "state": decision.state, "by": who, "data": decision.data}, lines, as_json)


@site_app.command()
def predict(
    study: StudyName,
    patients: PatientTable,
    query: SqlQuery = None,
    setting: ReaderSettings = None,
    keep: KeptColumns = None,
    out: OutFile = None,
    explain: Explain = False,
    page: PageFile = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Predict the outcome of new patients with the model that a study left at this site; asks nobody."""
    with uncollected():
        from wardround.cli.models.predict import Wanted, predict_with
        from wardround.deploy.party.decisions import resolve
        from wardround.deploy.site.own_model import own_model, own_reading
        from wardround.predict.predictor import load_predictor
        from wardround.runs.explain.selection_file import KEPT, has_selection

        there = open_home(home)
        offer = resolve(there, study)
        words = parse_settings(setting or [])
        kept = there.folder(offer.id) / KEPT
        if has_selection(kept):
            from wardround.cli.models.selection import predict_by_rules

            predict_by_rules(kept, None, Wanted(patients, query, words, keep or (), out, explain, page, as_json))
            return
        predictor = load_predictor(own_model(there.folder(offer.id), offer.id)).read_by(own_reading(there, offer.id))
    predict_with(predictor, Wanted(patients, query, words, keep or (), out, explain, page, as_json))


@site_app.command()
def report(
    study: StudyName,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write; by default report.html in the study's folder here.")
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Write this site's own report of a finished study: every figure of its own patients; asks nobody."""
    from wardround.cli.models.predict import refuse_folder, write_file
    from wardround.deploy.party.decisions import resolve
    from wardround.deploy.site.clinical.own_pictures import own_pictures
    from wardround.deploy.site.clinical.own_report import figures_of, own_rows
    from wardround.report.run.page import own_page
    from wardround.runs.file_names import REPORT
    from wardround.runs.result import values_of

    there = open_home(home)
    offer = resolve(there, study)
    target = out or there.folder(offer.id) / REPORT
    if out is not None:
        refuse_folder(out)
    asked, worker, predictor = own_rows(there, offer)
    result = figures_of(asked, worker, predictor, there.folder(offer.id), there.settings)
    page = own_page(result, asked.model_dump(mode="json"), own_pictures(worker, predictor))
    write_file(target, page.encode())
    target.chmod(0o600)
    tested = result.sites[0].test or 0
    lines = [
        f"Report: {target}",
        f"It holds exact figures of your own patients ({tested:,} of them tested) and stays at your site.",
    ]
    say({"report": str(target), "result": values_of(result)}, lines, as_json)


@site_app.command()
def notify(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Send a test notice by e-mail, webhook or command, as notices.toml in the site's folder says."""
    there = open_home(home)
    send_test(there.path, f"the site {there.own_name}", as_json=as_json)


@site_app.command()
def log(study: OnlyStudy = None, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Show everything this site ever sent and every decision; exit code 2 if the log was changed."""
    from wardround.cli.audit import show_command

    show_command(open_home(home).audit_path, None, study=study, as_json=as_json)


@site_app.command()
def start(home: HomeFolder = None, metrics: Metrics = "", form: LogAs = "text", file: LogFile = None) -> None:
    """Connect to the coordinator and answer approved studies, until Ctrl-C."""
    start_site(open_home(home).path, service_options(metrics, form, file))


add_operations(site_app, "site")
