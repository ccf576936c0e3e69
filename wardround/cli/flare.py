"""`wardround flare`: studies as jobs for consortia that already operate NVIDIA FLARE.

Imports are inside the commands, so that help loads nothing heavy.
"""

from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.output import say
from wardround.core.errors import Refusal

flare_app = typer.Typer(help="Run studies as jobs of an existing NVIDIA FLARE installation.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@flare_app.command()
def export(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="The study file (TOML).")],
    out: Annotated[Path, typer.Option("--out", help="The job's folder, which is created.")],
    sites: Annotated[
        list[str] | None,
        typer.Option("--site", help="A site's name in FLARE, if [deploy] sites names none; may be repeated."),
    ] = None,
    home: Annotated[
        Path | None, typer.Option("--home", help="The coordinator's folder, to name the sites' keys in the study.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a study as a FLARE job (JSON only, no code). If the job is lost, submit it again: it continues."""
    from wardround.cli.consortium.studies import for_sites
    from wardround.deploy.coordinator.queue import with_members
    from wardround.deploy.coordinator.schema_agreement import table_without_rows
    from wardround.deploy.home import CoordinatorHome, home_path
    from wardround.deploy.protocol.study_id import study_id
    from wardround.deploy.transport.flare_export import export as write_job
    from wardround.deploy.transport.flare_export import sites_of
    from wardround.deploy.trust.pins import needs_pins
    from wardround.study.file import read_study

    words = for_sites(read_study(study))
    if home is not None:
        named_sites = list(words.deploy.sites or sites or ())
        deploy = words.deploy.model_copy(update={"sites": named_sites})
        words = with_members(words.model_copy(update={"deploy": deploy}), CoordinatorHome(home_path(home)))
    if needs_pins(words) and not words.deploy.fingerprints:
        raise Refusal(
            "sites approve a secure sum only if it names the fingerprints of their keys",
            where=f"{study}, [deploy] fingerprints",
            remedy="name the coordinator's folder with --home, which holds their certificates",
        )
    try:
        table_without_rows(words)  # what can be known to be wrong before any site hears of the study
    except Refusal as refusal:
        raise Refusal(refusal.what, where=f"{study}, {refusal.where}", remedy=refusal.remedy) from None
    folder = write_job(words, out, sites or ())
    named = sorted(sites_of(words, sites or ()))
    lines = [
        f"Wrote the job of {study_id(words)} for {', '.join(named)}: {folder}",
        f"1. Submit it: nvflare job submit -j {folder}",
        f"2. Each site approves it when it arrives: wardround site approve {study_id(words)}",
        "3. If the job is lost, submit it again: the study continues in the same round.",
    ]
    say({"study": study_id(words), "sites": named, "job": str(folder)}, lines, as_json)


@flare_app.command()
def connect(
    kit: Annotated[
        Path, typer.Argument(metavar="KIT", help="The party's FLARE startup kit, with `startup` and `local`.")
    ],
    home: Annotated[
        Path, typer.Option("--home", help="The wardround folder of this site, or of the coordinator at the server.")
    ],
    only: Annotated[
        bool, typer.Option("--only", help="Allow no other class in jobs, and no code sent with jobs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Allow FLARE jobs to use wardround at this party, with this party's own folder."""
    from wardround.deploy.transport.flare_export import connect as allow

    made = allow(kit, home, only=only)
    lines = [
        f"Jobs in {made['kit']} may use {made['class']} with the folder {made['home']}.",
        "Restart this party's FLARE process.",
    ]
    if made["may_ship_code"]:
        lines.append(
            f"Warning: these roles may still send code with a job: {', '.join(made['may_ship_code'])} "
            '("byoc" in local/authorization.json). Use --only to forbid it.'
        )
    say(made, lines, as_json)
