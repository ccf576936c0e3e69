"""`wardround retrain`: the exact model without a site that withdrew."""

from pathlib import Path

import typer

from wardround.cli.studies import print_result, round_bar
from wardround.cli.study_progress import conduct_study
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.queue import home_of, queue_without
from wardround.report.model_card.facts import write_card
from wardround.report.run.page import write_report
from wardround.report.terminal import summary_table
from wardround.runs.folder import RunFolder
from wardround.workflows.retrain import manifest_of, retrain


def retrain_command(folder: Path, without: list[str], *, out: Path | None, by: str | None, as_json: bool) -> None:
    """Train a simulated run again, or queue a deployed one anew."""
    manifest = manifest_of(folder)
    if manifest["kind"] == "deployed":
        if out is not None:
            raise Refusal(
                "a deployed study is trained in the coordinator's folder", where="--out", remedy="remove --out"
            )
        name = queue_without(folder, without, by)
        conduct_study(home_of(folder), name, wait=False, as_json=as_json)
        return
    name = f"{folder.resolve().name}-without-{'-'.join(without)}"
    place = out or RunFolder.free_name(folder.resolve().parent, name.replace("/", "-"))
    compare = manifest["study"].get("compare") if manifest["kind"] != "run" else None
    methods = len(compare["methods"]) if compare else 1
    try:
        with round_bar(manifest["study"]["study"]["rounds"], methods) as advance:
            result = retrain(folder, without, place, on_round=advance)
    except KeyboardInterrupt:
        typer.echo(f"wardround: interrupted. Start again; {place} can be deleted.", err=True)
        raise typer.Exit(130) from None
    write_card(place)
    write_report(place)
    print_result(result, RunFolder(place), summary_table, as_json=as_json)
