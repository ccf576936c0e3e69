"""`wardround`: every command, with one paragraph and exit code 2 for a mistake that the user can fix."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from wardround.cli.consortium.notices import told_when_over
from wardround.cli.coordinator import coordinator_app
from wardround.cli.flare import flare_app
from wardround.cli.models.commands import add_commands
from wardround.cli.party.second import second_app
from wardround.cli.party.site import site_app
from wardround.cli.records import audit_app, ledger_app
from wardround.cli.trust.authority import authority_app
from wardround.core.errors import Refusal
from wardround.core.text import plain_line

app = typer.Typer(
    name="wardround",
    help="Hospitals train models together in rounds, and no patient's record ever leaves its hospital.",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)

app.add_typer(audit_app, name="audit")
app.add_typer(ledger_app, name="ledger")
app.add_typer(site_app, name="site")
app.add_typer(coordinator_app, name="coordinator")
app.add_typer(authority_app, name="authority")
app.add_typer(second_app, name="second")
app.add_typer(flare_app, name="flare")

StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="The study file (TOML).")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, progress on standard error.")]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder (default: runs/NAME).")]
HostCount = Annotated[int, typer.Option("--hosts", min=1, help="Hosts that share the work (simulation).")]
HostNumber = Annotated[int, typer.Option("--host", min=0, help="The number of this host, from 0.")]
Coordinator = Annotated[str, typer.Option("--coordinator", help="Address and port of host 0, such as 10.0.0.1:7070.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in the folder --out.")]


@contextmanager
def name_study_file(study: Path) -> Iterator[None]:
    """A refusal that tells only a table, such as [algorithm], also tells the study file it is in."""
    try:
        yield
    except Refusal as refusal:
        if not refusal.where.startswith("["):
            raise
        raise Refusal(refusal.what, where=f"{study}, {refusal.where}", remedy=refusal.remedy) from None


def join_hosts(hosts: int, host: int, coordinator: str) -> None:
    """Join the other hosts, before anything computes."""
    if hosts == 1 and not coordinator:
        return
    if not coordinator:
        raise Refusal("several hosts need a common address", where="--coordinator", remedy="give the address of host 0")
    from wardround.engine.machine.hosts import Hosts, join

    join(Hosts(hosts, host, coordinator))


def print_version(value: bool) -> None:
    if value:
        from wardround import __version__

        typer.echo(f"wardround {__version__}")
        raise typer.Exit


@app.callback()
def options(
    show: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Hospitals train models together in rounds, and no patient's record ever leaves its hospital."""


@app.command()
def demo(
    out: Out = None,
    as_json: AsJson = False,
    sites: Annotated[
        int,
        typer.Option(
            "--sites", min=0, help="Start this many sites as real processes over mutual TLS, instead of a simulation."
        ),
    ] = 0,
) -> None:
    """Run a demo: four hospitals train a triage model and compare local, common and personal models."""
    if sites:
        from wardround.cli.services import demo_sites

        demo_sites(sites, out, as_json=as_json)
        return
    from wardround.cli.studies import run_command
    from wardround.study.demo import demo_study

    run_command(demo_study(), kind="demo", out=out, resume=False, as_json=as_json)


@app.command()
def run(
    study: StudyPath,
    out: Out = None,
    resume: Resume = False,
    as_json: AsJson = False,
    hosts: HostCount = 1,
    host: HostNumber = 0,
    coordinator: Coordinator = "",
) -> None:
    """Train a study, and evaluate the model on the held-out patients of every site."""
    join_hosts(hosts, host, coordinator)
    from wardround.cli.studies import run_command
    from wardround.study.file import read_study

    with name_study_file(study):
        run_command(read_study(study), kind="run", out=out, resume=resume, as_json=as_json)


@app.command()
def compare(
    study: StudyPath,
    out: Out = None,
    resume: Resume = False,
    as_json: AsJson = False,
    hosts: HostCount = 1,
    host: HostNumber = 0,
    coordinator: Coordinator = "",
) -> None:
    """Compare the methods of [compare] on the same splits, with tests of significance."""
    join_hosts(hosts, host, coordinator)
    from wardround.cli.studies import run_command
    from wardround.study.file import read_study

    with name_study_file(study):
        run_command(read_study(study), kind="compare", out=out, resume=resume, as_json=as_json)


@app.command()
def partners(
    study: StudyPath,
    asking: Annotated[
        str | None, typer.Option("--for", metavar="SITE", help="The asking site (default: [study] user).")
    ] = None,
    withdrawn: Annotated[
        list[str] | None, typer.Option("--without", metavar="SITE", help="A site that withdrew.")
    ] = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Recommend partners for a site: whose data help its patients, whose do not, and why."""
    from wardround.cli.studies import partners_command
    from wardround.study.file import read_study

    with name_study_file(study):
        partners_command(read_study(study), asking, withdrawn or [], out=out, as_json=as_json)


@app.command()
def explain(study: StudyPath, out: Out = None, as_json: AsJson = False) -> None:
    """Find out for which patients another site's model knows more than the own one, with rules in words."""
    from wardround.cli.models.expertise import explain_command
    from wardround.study.file import read_study

    with name_study_file(study):
        explain_command(read_study(study), out=out, as_json=as_json)


@app.command()
def label(
    study: Annotated[Path, typer.Argument(help="A study with rule_mining, or the run folder of one.")],
    out: Out = None,
    resume: Resume = False,
    by: Annotated[str | None, typer.Option("--by", help="Who judges, for the report (default: your login).")] = None,
    as_json: AsJson = False,
) -> None:
    """Judge rules that the sites propose, so that nobody labels records; can be stopped and resumed."""
    from wardround.cli.models.label import answer_folder, label_command
    from wardround.study.file import read_study

    if study.is_dir():
        answer_folder(study, by=by)
        return
    with name_study_file(study):
        label_command(read_study(study), out=out, resume=resume, as_json=as_json, by=by, file=study)


@app.command()
def gaps(study: StudyPath, out: Out = None, as_json: AsJson = False) -> None:
    """Find practices in which another organisation decides more consistently, and try its model as a stop-gap."""
    from wardround.cli.models.expertise import gaps_command
    from wardround.study.file import read_study

    with name_study_file(study):
        gaps_command(read_study(study), out=out, as_json=as_json)


@app.command()
def retrain(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    without: Annotated[list[str], typer.Option("--without", metavar="SITE", help="The site that withdrew.")],
    out: Annotated[Path | None, typer.Option("--out", help="The new run folder (default: beside the old one).")] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who submits the study (deployed runs).")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a finished run again without a site that withdrew, as if it had never taken part."""
    from wardround.cli.retrain import retrain_command

    retrain_command(folder, without, out=out, by=by, as_json=as_json)


add_commands(app)


@app.command()
def tune(study: StudyPath, out: Out = None, resume: Resume = False, as_json: AsJson = False) -> None:
    """Search the hyperparameters of [tune] by cross-validation; test patients are never used."""
    from wardround.cli.studies import tune_command
    from wardround.study.file import read_study

    with name_study_file(study):
        tune_command(read_study(study), out=out, resume=resume, as_json=as_json)


@app.command()
def check(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="The study file (TOML), or a table (.csv, .parquet).")],
    as_json: AsJson = False,
) -> None:
    """Check a study and its data, and show what would be trained; trains nothing. Of a table, show its columns."""
    from wardround.cli.tables.check import check_path

    with name_study_file(study):
        check_path(study, as_json=as_json)


@app.command()
def attack(
    study: StudyPath,
    shadows: Annotated[int, typer.Option("--shadows", help="Shadow models to train for the membership attack.")] = 16,
    out: Annotated[Path | None, typer.Option("--out", help="A folder for attack.json.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure what a curious coordinator could learn from a study, with and without its protections."""
    from wardround.cli.attack import attack_command
    from wardround.study.file import read_study

    with name_study_file(study):
        attack_command(read_study(study), shadows=shadows, out=out, as_json=as_json)


@app.command()
def leaf(
    name: Annotated[str, typer.Argument(metavar="SET", help="synthetic, mnist_writers, imdb_films, femnist, ...")],
    path: Annotated[str, typer.Option("--path", help="Files in LEAF's own format: one, or a folder of them.")] = "",
    images: Annotated[str, typer.Option("--images", help="CelebA's folder of pictures.")] = "",
    methods: Annotated[str, typer.Option("--methods", help="Some of the reference methods, with commas.")] = "",
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="Rounds (default: the set's own).")] = None,
    cohort: Annotated[int | None, typer.Option("--cohort", min=1, help="Clients in a round.")] = None,
    fewest: Annotated[int | None, typer.Option("--fewest", min=0, help="Leave clients with fewer rows out.")] = None,
    target: Annotated[float | None, typer.Option("--target", min=0, max=1, help="Accuracy to reach.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of models, cohorts and splits.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Run LEAF's reference methods on a set of natural clients, and print accuracies and costs."""
    from wardround.cli.models.leaf import leaf_command
    from wardround.workflows.leaf import METHODS, LeafRun

    chosen = tuple(methods.split(",")) if methods else METHODS
    asked = LeafRun(name, chosen, path, images, fewest, rounds, cohort, target, seed)
    leaf_command(asked, as_json=as_json)


@app.command(name="list")
def list_components(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="algorithm, aggregator, model, ...")] = None,
    as_json: AsJson = False,
) -> None:
    """List the components that a study can use, with their settings and defaults."""
    from wardround.cli.components import list_command

    list_command(kind, as_json=as_json)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")], as_json: AsJson = False
) -> None:
    """Write report.html for a finished or interrupted run."""
    from wardround.report.run.page import write_report
    from wardround.runs.read import has_manifest

    if not has_manifest(folder):
        raise Refusal("this is not a run folder", where=str(folder), remedy="name a folder that `wardround run` wrote")
    path = write_report(folder)
    typer.echo(json.dumps({"report": str(path)}) if as_json else f"Report: {path}")


@app.command()
def bench(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="tabular, hospitals, images, scale")] = None,
    as_json: AsJson = False,
) -> None:
    """Time a round against other frameworks (needs a checkout and `make bench`)."""
    from wardround.cli.benchmarks import bench_command

    bench_command(name, as_json=as_json)


@app.command()
def doctor(
    home: Annotated[
        Path | None, typer.Option("--home", help="The folder of a site or coordinator (default: $WARDROUND_HOME).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Diagnose a site or coordinator: name, firewall, proxy, clock, certificate, disk, data."""
    from wardround.cli.doctor import doctor_command

    doctor_command(home, as_json=as_json)


@app.command()
def rewards(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished `run` or `partners`.")],
    rule: Annotated[str, typer.Option("--rule", help="rounds, weights, rank, inclusion, influence or shapley.")],
    budget: Annotated[str, typer.Option("--budget", help="The amount to divide, such as 1000.00.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the statement to this file, to record it in a ledger.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Divide a budget among the partners of a finished run, to the cent; the asking site pays."""
    from wardround.cli.incentives import rewards_command

    rewards_command(folder, rule, budget, out=out, as_json=as_json)


@cache
def whole_command() -> Any:
    """All commands, put together once a process: that takes as long as many a command."""
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """The entry point: turns a refusal into one paragraph and exit code 2."""
    given = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        with told_when_over(given):
            result: Any = whole_command()(given, standalone_mode=False)
    except Refusal as refusal:
        if "--json" in given:
            typer.echo(json.dumps({"error": str(refusal)}))
        typer.echo(f"wardround: {plain_line(refusal)}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):  # typer makes the one out of the other
        typer.echo("wardround: interrupted before anything was trained.", err=True)
        sys.exit(130)
    except Exception as error:
        usage = getattr(error, "format_message", None)
        if usage is None:
            raise
        typer.echo(f"wardround: {usage()} (see wardround --help)", err=True)
        sys.exit(2)
    sys.exit(result if isinstance(result, int) else 0)
